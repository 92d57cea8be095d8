#include "rendezvous/frames.h"

#include <cstdint>

#include <lockstep/base/error.h>

namespace lockstep::rendezvous {
namespace {

constexpr std::size_t kLengthBytes = 4;

std::size_t length_at(std::string_view bytes) {
  std::size_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) length = length << 8 | static_cast<unsigned char>(bytes[i]);
  return length;
}

}  // namespace

std::string to_frame(std::string_view payload) {
  if (payload.size() > kMostFrameBytes)
    throw CommError("rendezvous", {.what = "a message is too long",
                                   .expected = "at most " + std::to_string(kMostFrameBytes) + " bytes",
                                   .got = std::to_string(payload.size())});
  std::string frame;
  frame.reserve(kLengthBytes + payload.size());
  for (std::size_t i = 0; i < kLengthBytes; ++i) frame += static_cast<char>(payload.size() >> (8 * i) & 0xff);
  return frame.append(payload);
}

Expected<std::optional<std::string>> FrameBuffer::next() {
  const auto rest = std::string_view(bytes_).substr(begin_);
  if (rest.size() < kLengthBytes) return std::optional<std::string>();
  const auto length = length_at(rest);
  if (length > kMostFrameBytes) return Unexpected{"a frame of " + std::to_string(length) + " bytes"};
  if (rest.size() < kLengthBytes + length) return std::optional<std::string>();
  std::optional<std::string> payload(rest.substr(kLengthBytes, length));
  begin_ += kLengthBytes + length;
  if (begin_ == bytes_.size() || begin_ > (1U << 16)) {
    bytes_.erase(0, begin_);
    begin_ = 0;
  }
  return payload;
}

}  // namespace lockstep::rendezvous
