// Messages on a stream of bytes: each is its length, four bytes with the least one first, and its payload.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>

namespace lockstep::rendezvous {

/// The longest payload, in bytes.
inline constexpr std::size_t kMostFrameBytes = std::size_t{16} << 20;

/// `payload` as it travels.
/// @throws CommError when it is too long
LOCKSTEP_API std::string to_frame(std::string_view payload);

/// Bytes as they arrive, and the messages among them.
class LOCKSTEP_API FrameBuffer {
 public:
  void append(std::string_view bytes) { bytes_ += bytes; }

  /// Removes the next payload; nothing while it is not complete.
  /// @returns an error when the other side announces more than kMostFrameBytes
  Expected<std::optional<std::string>> next();

 private:
  std::string bytes_;
  std::size_t begin_ = 0;  ///< of what was not taken
};

}  // namespace lockstep::rendezvous
