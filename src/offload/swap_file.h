// A file of fixed size for tensors that are not in memory, read and written in the background.
//
//   SwapFolder folder({.directory = "/data", .rank = rank});
//   SwapFile file(folder, "optimizer", bytes, options);
//   AlignedBuffer buffer(1 << 20);
//   Transfer read = file.read(0, buffer.bytes());   // under way from now on
//   ...
//   read.wait();                                    // now the bytes are there
//
// Transfers that are under way at the same time may be carried out in any order: who writes what another one
// reads, or writes, must wait for that one first.
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

// What is read or written in the background, as callers see it.

class TransferState;

/// A read or write that was begun; the caller waits for it before it uses the memory again.
class LOCKSTEP_API Transfer {
 public:
  /// One that is done.
  Transfer() = default;
  explicit Transfer(std::shared_ptr<TransferState> state) : state_(std::move(state)) {}
  Transfer(Transfer&&) noexcept = default;
  /// Waits for the one that it was.
  Transfer& operator=(Transfer&& other) noexcept;
  /// Waits for it, as the memory may go now. An error is lost.
  ~Transfer();

  /// Whether wait() would return at once.
  bool is_done() const;
  /// Blocking. Says once what went wrong.
  /// @throws IoError naming file, offset, bytes and the system's reason
  void wait();

 private:
  std::shared_ptr<TransferState> state_;
};

enum class Direction;

/// What a file has done since it was made.
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
  /// Waits for all that is under way.
  ~SwapFile();

  /// Begins to read bytes from `offset` on. `bytes` must stay, and nobody may touch them, until the result
  /// was waited for. Offset, address and size are multiples of kAlignment (those of an AlignedBuffer are).
  /// @throws Error when they are not, or lie beyond the file's end
  [[nodiscard]] Transfer read(std::uint64_t offset, std::span<std::byte> bytes);
  /// Begins to write `bytes` from `offset` on, by the same rules; they may be read meanwhile.
  [[nodiscard]] Transfer write(std::uint64_t offset, std::span<const std::byte> bytes);

  const std::filesystem::path& path() const;
  std::uint64_t bytes() const;
  /// "io_uring" or "threads".
  std::string_view engine() const;
  /// Whether transfers go past the page cache. Never on tmpfs, which is nothing else.
  bool is_direct() const;
  SwapStatistics statistics() const;

 private:
  struct Opened;
  Transfer begin(Direction direction, std::uint64_t offset, std::byte* data, std::size_t bytes);

  std::unique_ptr<Opened> opened_;
};

}  // namespace lockstep::offload
