// Transfers between memory and files in the background: their aligned memory, options and blocks, and the
// engines that run them.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>

namespace lockstep::offload {

/// Offsets, sizes and addresses of transfers are multiples of this, in bytes: the largest sector of common
/// disks, and a page.
inline constexpr std::size_t kAlignment = 4096;

/// `bytes`, rounded up to a multiple of kAlignment.
constexpr std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Owns memory whose address and size are multiples of kAlignment, and which is zero at first. Large buffers
/// use huge pages where possible, and are returned to the system when they are destroyed.
class LOCKSTEP_API AlignedBuffer {
 public:
  AlignedBuffer() = default;
  /// `bytes` is rounded up. @throws std::bad_alloc
  explicit AlignedBuffer(std::uint64_t bytes);
  AlignedBuffer(AlignedBuffer&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~AlignedBuffer();

  /// Valid as long as this object, also after a move of it.
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

/// The kinds of engines.
enum class EngineKind {
  kAuto,     ///< io_uring where the system allows it, else threads
  kIoUring,  ///< io_uring(7), with one thread of its own
  kThreads   ///< threads that call pread(2) and pwrite(2)
};

/// The names and defaults of DeepSpeed's section `aio`.
struct SwapOptions {
  std::int64_t block_size = 1 << 20;      ///< bytes that are transferred at once; a multiple of 4096
  std::int64_t queue_depth = 8;           ///< maximal number of blocks in progress; threads: up to 16
  bool single_submit = false;             ///< submit blocks to io_uring one by one
  bool overlap_events = true;             ///< false: io_uring gets more blocks when all that it had are done
  EngineKind engine = EngineKind::kAuto;  ///< not an option of DeepSpeed
  bool direct = true;  ///< bypass the page cache (O_DIRECT) where possible; not of DeepSpeed
};

/// @throws ConfigError naming key, value and what is accepted
LOCKSTEP_API void validate(const SwapOptions& options);

enum class Direction { kRead, kWrite };

/// The statistics and settings that all transfers of a file share.
struct FileActivity {
  std::filesystem::path path;  ///< for errors
  bool is_direct = false;      ///< the page cache is bypassed
  std::atomic<std::uint64_t> bytes_read = 0;
  std::atomic<std::uint64_t> bytes_written = 0;
  std::atomic<std::int64_t> read_wait_ns = 0;  ///< spent in Transfer::wait()
  std::atomic<std::int64_t> write_wait_ns = 0;
};

/// The failure of a block.
struct BlockFailure {
  std::uint64_t offset = 0;
  std::size_t bytes = 0;  ///< that were not transferred
  int error_number = 0;   ///< of errno; 0: the file ends there
};

/// The state of a transfer. Thread-safe.
class TransferState {
 public:
  TransferState(Direction direction, std::shared_ptr<FileActivity> file, std::size_t blocks);

  Direction direction() const { return direction_; }
  bool is_direct() const { return file_->is_direct; }
  /// Notes that a block is done. Stores the first failure.
  void block_done(std::size_t bytes, const std::optional<BlockFailure>& failure);
  bool is_done() const;
  /// Blocks until all blocks are done. Returns the first failure.
  std::optional<BlockFailure> wait();
  const std::filesystem::path& path() const { return file_->path; }

 private:
  const Direction direction_;
  const std::shared_ptr<FileActivity> file_;
  mutable std::mutex mutex_;  // guards the two below
  std::size_t blocks_left_;
  std::optional<BlockFailure> failure_;
  std::condition_variable done_;
};

/// A part of a transfer, of which `bytes` are left. Every block must be completed or failed by whoever owns
/// it.
struct Block {
  /// Handles the result of pread or pwrite, or -errno. Returns true when the block is done, and its transfer
  /// has been notified; otherwise it must be submitted again.
  bool advance(ssize_t result);
  /// Ends the block with that error.
  void fail(int error_number);

  std::shared_ptr<TransferState> transfer;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::uint64_t offset = 0;
  std::size_t done = 0;  ///< bytes, which lie before those
};

/// A queue of blocks, first in, first out. Thread-safe. Once closed, it fails its blocks and new ones.
class BlockQueue {
 public:
  void push(std::span<Block> blocks) {
    std::unique_lock lock(mutex_);
    if (const int error_number = closed_by_) {
      lock.unlock();
      for (Block& block : blocks) block.fail(error_number);
      return;
    }
    waiting_.insert(waiting_.end(), std::make_move_iterator(blocks.begin()),
                    std::make_move_iterator(blocks.end()));
  }

  std::optional<Block> pop() {
    const std::scoped_lock lock(mutex_);
    if (waiting_.empty()) return {};
    std::optional<Block> first(std::move(waiting_.front()));
    waiting_.pop_front();
    return first;
  }

  void close(int error_number) {
    std::unique_lock lock(mutex_);
    closed_by_ = error_number;
    auto waiting = std::exchange(waiting_, {});
    lock.unlock();
    for (Block& block : waiting) block.fail(error_number);
  }

 private:
  std::mutex mutex_;  // guards the two below
  std::deque<Block> waiting_;
  int closed_by_ = 0;  // of errno
};

/// Runs the transfers of one file. Completes or fails all submitted blocks, also while it is destroyed.
class IoEngine {
 public:
  virtual ~IoEngine() = default;

  /// "io_uring" or "threads".
  virtual std::string_view name() const = 0;
  /// Takes over the blocks, and does not wait for them. Thread-safe.
  virtual void submit(std::span<Block> blocks) = 0;
};

/// The engine that `options` ask for. `fd` must stay open as long as it lives.
/// @throws ConfigError when io_uring is asked for and the system has or allows none; Error when there can be
/// no thread
std::unique_ptr<IoEngine> make_engine(int fd, const SwapOptions& options);

/// The engine over io_uring, or the reason why this process cannot use it.
Expected<std::unique_ptr<IoEngine>> make_uring_engine(int fd, const SwapOptions& options);

std::unique_ptr<IoEngine> make_thread_engine(int fd, const SwapOptions& options);

}  // namespace lockstep::offload
