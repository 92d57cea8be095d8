// Checksums of bytes in files: XXH3-128, which detects accidental damage, not forgery.
// https://github.com/Cyan4973/xxHash
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <lockstep/base/export.h>

namespace lockstep {

/// Takes bytes piece by piece.
class LOCKSTEP_API Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;

  /// Takes more bytes in.
  void add(std::span<const std::byte> bytes);
  /// The same for a text.
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }

  /// The checksum of all bytes so far: 32 hexadecimal digits, as xxh128sum prints them.
  std::string digits() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The checksum of `bytes`.
LOCKSTEP_API std::string checksum(std::span<const std::byte> bytes);

}  // namespace lockstep
