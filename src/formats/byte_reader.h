// Bytes that are read from front to back; nothing is read beyond their end.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

namespace lockstep::detail {

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::size_t position() const { return position_; }
  std::size_t remaining() const { return bytes_.size() - position_; }

  /// Sets `value` to the next bytes, the lowest first; false when there are too few.
  template <class T>
  bool read(T& value) {
    static_assert(std::endian::native == std::endian::little);
    if (remaining() < sizeof(T)) return false;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return true;
  }

  /// Sets `taken` to the next `count` bytes; false when there are too few.
  bool take(std::size_t count, std::span<const std::byte>& taken) {
    if (remaining() < count) return false;
    taken = bytes_.subspan(position_, count);
    position_ += count;
    return true;
  }

  /// Sets `line` to the text before the next line feed, which is skipped; false when there is none.
  bool take_line(std::string_view& line) {
    const auto rest = bytes_.subspan(position_);
    const auto end = std::ranges::find(rest, std::byte{'\n'});
    if (end == rest.end()) return false;
    line = {reinterpret_cast<const char*>(rest.data()), static_cast<std::size_t>(end - rest.begin())};
    position_ += line.size() + 1;
    return true;
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t position_ = 0;
};

}  // namespace lockstep::detail
