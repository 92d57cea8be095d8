// A file of fixed size for tensors that are not in memory, read and written in the background.
//
//   SwapFolder folder({.directory = "/data", .rank = rank});
//   SwapFile file(folder, "optimizer", bytes, options);
//   AlignedBuffer buffer(1 << 20);
//   Transfer read = file.read(0, buffer.bytes());   // in progress from now on
//   ...
//   read.wait();                                    // now the bytes are there
//
// Transfers that are in progress at the same time may run in any order: before a write to bytes that another
// transfer reads or writes, the caller must wait for that transfer.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <lockstep/base/export.h>

#include "offload/io_engine.h"
#include "offload/swap_folder.h"

namespace lockstep::offload {

// Reads and writes in the background, as callers see them.

class TransferState;

/// A read or write that was begun; the caller waits for it before it uses the memory again.
class LOCKSTEP_API Transfer {
 public:
  /// A transfer that is done.
  Transfer() = default;
  explicit Transfer(std::shared_ptr<TransferState> state) : state_(std::move(state)) {}
  Transfer(Transfer&&) noexcept = default;
  /// Waits for the previous transfer.
  Transfer& operator=(Transfer&& other) noexcept;
  /// Waits for the transfer, since its memory may be freed now. An error is lost.
  ~Transfer();

  /// Whether wait() would return at once.
  bool is_done() const;
  /// Blocks until the transfer is done. Reports its failure once.
  /// @throws IoError naming file, offset, bytes and the system's reason
  void wait();

 private:
  std::shared_ptr<TransferState> state_;
};

enum class Direction;

/// The statistics of a file since it was created.
struct SwapStatistics {
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  std::chrono::nanoseconds read_wait{};   ///< that callers spent waiting for reads
  std::chrono::nanoseconds write_wait{};  ///< and for writes
};

/// Owns the file; it is removed when this object goes, or with its folder. Thread-safe.
class LOCKSTEP_API SwapFile {
 public:
  /// Makes the file `name` in `folder`, with all its bytes on disk. Blocking.
  /// @throws IoError with the bytes needed and free where the disk has no room; ConfigError for wrong options
  SwapFile(const SwapFolder& folder, std::string_view name, std::uint64_t bytes,
           const SwapOptions& options = {});
  SwapFile(SwapFile&&) noexcept;
  SwapFile& operator=(SwapFile&&) noexcept;
  /// Waits for all transfers in progress.
  ~SwapFile();

  /// Begins to read bytes from `offset` on. `bytes` must stay valid and must not be accessed until the caller
  /// has waited for the result. Offset, address and size are multiples of kAlignment (those of an
  /// AlignedBuffer are).
  /// @throws Error when they are not, or lie beyond the file's end
  [[nodiscard]] Transfer read(std::uint64_t offset, std::span<std::byte> bytes);
  /// Begins to write `bytes` from `offset` on, by the same rules; they may be read meanwhile.
  [[nodiscard]] Transfer write(std::uint64_t offset, std::span<const std::byte> bytes);

  const std::filesystem::path& path() const;
  std::uint64_t bytes() const;
  /// "io_uring" or "threads".
  std::string_view engine() const;
  /// Whether transfers bypass the page cache. Never on tmpfs, which consists of it.
  bool is_direct() const;
  SwapStatistics statistics() const;

 private:
  struct Opened;
  Transfer begin(Direction direction, std::uint64_t offset, std::byte* data, std::size_t bytes);

  std::unique_ptr<Opened> opened_;
};

}  // namespace lockstep::offload
