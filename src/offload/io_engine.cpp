#include "offload/io_engine.h"

#include <cerrno>
#include <chrono>
#include <string>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

#include "offload/aligned_buffer.h"

namespace lockstep::offload {
namespace {

constexpr std::int64_t kLargestBlock = std::int64_t{1} << 30;  // what one system call certainly accepts
constexpr std::int64_t kDeepestQueue = 4096;

[[noreturn]] void refuse(const std::string& key, const std::string& expected, std::int64_t value) {
  throw ConfigError("offload", {.what = key, .expected = expected, .got = std::to_string(value)});
}

}  // namespace

void validate(const SwapOptions& options) {
  const auto block = options.block_size;
  if (block <= 0 || block > kLargestBlock || block % static_cast<std::int64_t>(kAlignment) != 0)
    refuse("aio.block_size", "bytes, a multiple of 4096 up to 1073741824", block);
  if (options.queue_depth < 1 || options.queue_depth > kDeepestQueue)
    refuse("aio.queue_depth", "1 to 4096", options.queue_depth);
}

namespace {

using Clock = std::chrono::steady_clock;

/// Adds the time from its construction to its end to `total`.
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

// Where the page cache is bypassed the rest must be aligned, so that a part of a block may be transferred
// twice.
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

std::unique_ptr<IoEngine> make_engine(int fd, const SwapOptions& options) {
  if (options.engine == EngineKind::kThreads) return make_thread_engine(fd, options);
  auto engine = make_uring_engine(fd, options);
  if (engine) return std::move(*engine);
  if (options.engine == EngineKind::kIoUring)
    throw ConfigError("offload", {.what = "engine io_uring",
                                  .expected = "a system that allows it",
                                  .got = engine.error(),
                                  .hint = "containers often forbid it; choose threads"});
  log_debug("offload: no io_uring (" + engine.error() + "); threads read and write");
  return make_thread_engine(fd, options);
}

}  // namespace lockstep::offload
