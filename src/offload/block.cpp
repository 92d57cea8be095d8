#include "offload/block.h"

#include <cerrno>
#include <chrono>
#include <utility>

#include "offload/aligned_buffer.h"

namespace lockstep::offload {
namespace {

using Clock = std::chrono::steady_clock;

/// Adds the time of its life.
class Stopwatch {
 public:
  explicit Stopwatch(std::atomic<std::int64_t>& total) : total_(total) {}
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() { total_ += std::chrono::nanoseconds(Clock::now() - start_).count(); }

 private:
  std::atomic<std::int64_t>& total_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

TransferState::TransferState(Direction direction, std::shared_ptr<FileActivity> file, std::size_t blocks)
    : direction_(direction), file_(std::move(file)), blocks_left_(blocks) {}

void TransferState::block_done(std::size_t bytes, const std::optional<BlockFailure>& failure) {
  (direction_ == Direction::kRead ? file_->bytes_read : file_->bytes_written) += bytes;
  const std::scoped_lock lock(mutex_);
  if (failure && !failure_) failure_ = failure;
  if (--blocks_left_ == 0) done_.notify_all();
}

bool TransferState::is_done() const {
  const std::scoped_lock lock(mutex_);
  return blocks_left_ == 0;
}

std::optional<BlockFailure> TransferState::wait() {
  const Stopwatch stopwatch(direction_ == Direction::kRead ? file_->read_wait_ns : file_->write_wait_ns);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return blocks_left_ == 0; });
  return failure_;
}

void Block::fail(int error_number) {
  transfer->block_done(done, BlockFailure{.offset = offset, .bytes = bytes, .error_number = error_number});
}

// What is left must be aligned where the page cache is not between: a little is done twice then.
bool Block::advance(ssize_t result) {
  if (result == -EINTR || result == -EAGAIN) return false;
  auto moved = result < 0 ? 0 : static_cast<std::size_t>(result);
  if (moved < bytes && transfer->is_direct()) moved -= moved % kAlignment;
  if (moved == 0) {
    const int nothing_moved = transfer->direction() == Direction::kRead ? 0 : EIO;
    fail(result < 0 ? static_cast<int>(-result) : nothing_moved);
    return true;
  }
  data += moved;
  offset += moved;
  bytes -= moved;
  done += moved;
  if (bytes == 0) transfer->block_done(done, {});
  return bytes == 0;
}

}  // namespace lockstep::offload
