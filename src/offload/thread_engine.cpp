// Transfers of swap files by threads.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <lockstep/base/error.h>

#include "offload/io_engine.h"

namespace lockstep::offload {
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

}  // namespace lockstep::offload
