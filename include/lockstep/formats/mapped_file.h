// Files mapped into memory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <utility>

#include <lockstep/base/export.h>

namespace lockstep {

/// Owns the mapping of one file; the pages are read when they are touched. The file must not be cut
/// short while it is mapped (replacing it by rename is fine): touching the lost part raises SIGBUS.
class LOCKSTEP_API MappedFile {
 public:
  /// How the bytes will be read.
  enum class Access {
    kRead,    ///< the bytes are the file's
    kPrivate  ///< writing to a page makes a copy of it; the file does not change
  };

  /// @throws IoError with file and system reason when it cannot be opened or is no regular file
  explicit MappedFile(const std::filesystem::path& path, Access access = Access::kRead);
  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MappedFile();

  /// The whole file; page-aligned. Valid as long as this object, also after a move of it.
  std::span<const std::byte> bytes() const { return bytes_; }
  /// The same, of a private mapping.
  std::span<std::byte> writable_bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace lockstep
