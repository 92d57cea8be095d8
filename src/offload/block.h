// What is read or written in the background, as engines see it.
//
// A transfer is cut into blocks. Engines take blocks, in any order, and report what came of each; the
// transfer is done when all of its blocks are.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>

#include <sys/types.h>

namespace lockstep::offload {

enum class Direction { kRead, kWrite };

/// What all transfers of a file share.
struct FileActivity {
  std::filesystem::path path;  ///< for errors
  bool is_direct = false;      ///< past the page cache
  std::atomic<std::uint64_t> bytes_read = 0;
  std::atomic<std::uint64_t> bytes_written = 0;
  std::atomic<std::int64_t> read_wait_ns = 0;  ///< spent in Transfer::wait()
  std::atomic<std::int64_t> write_wait_ns = 0;
};

/// What went wrong with a block.
struct BlockFailure {
  std::uint64_t offset = 0;
  std::size_t bytes = 0;  ///< that were not transferred
  int error_number = 0;   ///< of errno; 0: the file ends there
};

/// Of a whole transfer. Thread-safe.
class TransferState {
 public:
  TransferState(Direction direction, std::shared_ptr<FileActivity> file, std::size_t blocks);

  Direction direction() const { return direction_; }
  bool is_direct() const { return file_->is_direct; }
  /// One block is done. The first failure is kept.
  void block_done(std::size_t bytes, const std::optional<BlockFailure>& failure);
  bool is_done() const;
  /// Until all blocks are done. Gives the first failure.
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

/// A part of a transfer, of which `bytes` are still to be done. Who has one must bring it to its end.
struct Block {
  /// Takes what pread or pwrite returned, or -errno. True when the block is at its end, which its transfer
  /// has been told then; else it must be tried again.
  bool advance(ssize_t result);
  /// Ends it with that error.
  void fail(int error_number);

  std::shared_ptr<TransferState> transfer;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::uint64_t offset = 0;
  std::size_t done = 0;  ///< bytes, which lie before those
};

}  // namespace lockstep::offload
