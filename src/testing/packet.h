// Numbers and texts in one string of bytes, to send them to a copy of this process.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <lockstep/base/error.h>

namespace lockstep::testing {

/// What was put first is taken first.
class Packet {
 public:
  Packet() = default;
  explicit Packet(std::string bytes) : bytes_(std::move(bytes)) {}

  Packet& put(std::int64_t number) {
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof(number));
    return *this;
  }
  Packet& put(std::string_view text) {
    put(static_cast<std::int64_t>(text.size()));
    bytes_.append(text);
    return *this;
  }

  /// @throws Error if nothing is left
  std::int64_t take_number() {
    std::int64_t number = 0;
    std::memcpy(&number, take(sizeof(number)).data(), sizeof(number));
    return number;
  }
  /// @throws Error if nothing is left
  std::string take_text() { return std::string(take(static_cast<std::size_t>(take_number()))); }

  const std::string& bytes() const { return bytes_; }

 private:
  std::string_view take(std::size_t size) {
    if (bytes_.size() - next_ < size) throw Error("testing", {.what = "a packet ends too early"});
    next_ += size;
    return std::string_view(bytes_).substr(next_ - size, size);
  }

  std::string bytes_;
  std::size_t next_ = 0;
};

}  // namespace lockstep::testing
