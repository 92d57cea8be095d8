#include "offload/io_engine.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

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

namespace {

constexpr std::int64_t kMostThreads = 16;

class ThreadEngine final : public IoEngine {
 public:
  ThreadEngine(int fd, std::int64_t threads) : fd_(fd) {
    try {
      for (std::int64_t i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
    } catch (const std::system_error& error) {
      stop();
      throw Error("offload", {.what = "thread " + std::to_string(threads_.size() + 1) + " cannot be started",
                              .expected = std::to_string(threads) + " of them (aio.queue_depth)",
                              .got = error.what(),
                              .hint = "lower aio.queue_depth, or raise the limit of threads or memory"});
    }
  }
  ThreadEngine(const ThreadEngine&) = delete;
  ThreadEngine& operator=(const ThreadEngine&) = delete;
  ~ThreadEngine() override { stop(); }

  std::string_view name() const override { return "threads"; }

  void submit(std::span<Block> blocks) override {
    queue_.push(blocks);
    {
      const std::scoped_lock lock(mutex_);
      ++submissions_;
    }
    changed_.notify_all();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      const auto seen = submissions_;
      lock.unlock();
      while (auto block = queue_.pop()) carry_out(*block);
      lock.lock();
      changed_.wait(lock, [&] { return stopping_ || submissions_ != seen; });
      if (submissions_ == seen) return;
    }
  }

  void carry_out(Block& block) const {
    const bool is_read = block.transfer->direction() == Direction::kRead;
    ssize_t result = 0;
    do {
      const auto at = static_cast<off_t>(block.offset);
      result =
          is_read ? ::pread(fd_, block.data, block.bytes, at) : ::pwrite(fd_, block.data, block.bytes, at);
    } while (!block.advance(result < 0 ? -errno : result));
  }

  void stop() {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
  }

  const int fd_;
  BlockQueue queue_;
  std::mutex mutex_;  // guards the two below
  std::uint64_t submissions_ = 0;
  bool stopping_ = false;
  std::condition_variable changed_;
  std::vector<std::jthread> threads_;  // last: joined before what they use goes
};

}  // namespace

std::unique_ptr<IoEngine> make_thread_engine(int fd, const SwapOptions& options) {
  return std::make_unique<ThreadEngine>(fd, std::min(options.queue_depth, kMostThreads));
}

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

// From the next multiple of `alignment` on.
std::byte* aligned_start(std::byte* start, std::size_t alignment) {
  const auto address = reinterpret_cast<std::uintptr_t>(start);
  return start + (alignment - address % alignment) % alignment;
}

void unmap(std::span<std::byte> bytes) {
  if (!bytes.empty()) ::munmap(bytes.data(), bytes.size());
}

}  // namespace

// Limits of memory count mapped pages, even those that are never touched.
AlignedBuffer::AlignedBuffer(std::uint64_t wanted) {
  if (wanted == 0) return;
  const std::size_t size = aligned(wanted);
  const bool is_large = size >= kHugePage;
  const std::size_t mapped = is_large ? size + kHugePage : size;
  void* start = size < wanted || mapped < size
                    ? MAP_FAILED
                    : ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) throw std::bad_alloc();
  auto* const all = static_cast<std::byte*>(start);
  bytes_ = {is_large ? aligned_start(all, kHugePage) : all, size};
  if (!is_large) return;
  unmap({all, bytes_.data()});
  unmap({bytes_.data() + size, all + mapped});
  (void)::madvise(bytes_.data(), bytes_.size(), MADV_HUGEPAGE);  // only a hint to the system
}

AlignedBuffer::~AlignedBuffer() { unmap(bytes_); }

}  // namespace lockstep::offload
