// Buffer: an array in the memory of a device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "xla/client.h"

namespace lockstep::xla {

/// Bytes between addresses that plug-ins for CPUs take as they are.
inline constexpr std::uintptr_t kHostAlignment = 64;

class Buffer {
 public:
  /// Takes over `buffer`.
  Buffer(std::shared_ptr<const Client> client, PJRT_Buffer* buffer)
      : client_(std::move(client)), buffer_(buffer) {}
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  /// A copy of `data`, a dense array of `sizes` in row-major order. The host's memory is free when it
  /// returns.
  static std::shared_ptr<Buffer> copy_of(const std::shared_ptr<const Client>& client, int device,
                                         const void* data, PJRT_Buffer_Type type,
                                         std::span<const std::int64_t> sizes);

  /// The array at `data` itself, where the device can read it and it is aligned to kHostAlignment, else a
  /// copy. `owner` lives as long as the device uses the memory, which nobody may change meanwhile.
  static std::shared_ptr<Buffer> view_of(const std::shared_ptr<const Client>& client, int device,
                                         const void* data, PJRT_Buffer_Type type,
                                         std::span<const std::int64_t> sizes, std::shared_ptr<void> owner);

  PJRT_Buffer* get() const { return buffer_; }
  /// Takes over `buffer` in place of what it holds, which is freed.
  void replace(PJRT_Buffer* buffer);
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
  PJRT_Buffer* buffer_;
};

}  // namespace lockstep::xla
