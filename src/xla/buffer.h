// Buffer: an array in the memory of a device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <c10/util/SmallVector.h>

#include "xla/client.h"

namespace lockstep::xla {

/// Bytes between addresses that plug-ins for CPUs take as they are.
inline constexpr std::uintptr_t kHostAlignment = 64;

/// How several devices that run a program together hold an array.
enum class Layout {
  kCopies,  ///< each holds all of it
  kRows     ///< each holds as many of its rows, the slices along its first dimension
};

class Buffer {
 public:
  /// What each of the client's partitions holds, of which there is mostly one.
  using Parts = c10::SmallVector<PJRT_Buffer*, 1>;

  /// Takes over `parts`.
  Buffer(std::shared_ptr<const Client> client, Parts parts, Layout layout = Layout::kCopies)
      : client_(std::move(client)), parts_(std::move(parts)), layout_(layout) {}
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  /// A copy of `data`, a dense array of `sizes` in row-major order. The host's memory is free when it
  /// returns.
  static std::shared_ptr<Buffer> copy_of(const std::shared_ptr<const Client>& client, int device,
                                         const void* data, PJRT_Buffer_Type type,
                                         std::span<const std::int64_t> sizes);

  /// The same, of `bytes` bytes, with its rows dealt out to the client's partitions, which can share them
  /// evenly.
  static std::shared_ptr<Buffer> rows_of(const std::shared_ptr<const Client>& client, const void* data,
                                         std::size_t bytes, PJRT_Buffer_Type type,
                                         std::span<const std::int64_t> sizes);

  /// The array at `data` itself, where the device can read it and it is aligned to kHostAlignment, else a
  /// copy. `owner` lives as long as the device uses the memory, which nobody may change meanwhile.
  static std::shared_ptr<Buffer> view_of(const std::shared_ptr<const Client>& client, int device,
                                         const void* data, PJRT_Buffer_Type type,
                                         std::span<const std::int64_t> sizes, std::shared_ptr<void> owner);

  const Parts& parts() const { return parts_; }
  Layout layout() const { return layout_; }
  /// Takes over `parts`, of the same layout, in place of what it holds, which is freed.
  void replace(Parts parts);
  /// Writes the array to `data`, of `bytes` bytes. Blocks until what makes it has run.
  /// @throws Error with the plug-in's words where that failed, or where the buffer was donated
  void read(void* data, std::size_t bytes) const;
  /// Blocks until what makes it has run. @throws as read()
  void wait() const;
  /// Whether a program took it as an argument that it may overwrite.
  bool is_donated() const;
  /// The address on the device. For tests.
  std::uintptr_t address() const;

 private:
  void free();

  std::shared_ptr<const Client> client_;
  Parts parts_;
  Layout layout_;
};

}  // namespace lockstep::xla
