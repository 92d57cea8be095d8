#include "loggers/protobuf.h"

#include <bit>

#include "formats/utf8.h"
#include "loggers/little_endian.h"

namespace lockstep::detail {
namespace {

constexpr unsigned kVarint = 0;
constexpr unsigned kFixed64 = 1;
constexpr unsigned kLengthDelimited = 2;
constexpr unsigned kFixed32 = 5;

}  // namespace

ProtobufMessage& ProtobufMessage::integer(int field, std::int64_t value) {
  append_tag(field, kVarint);
  append_varint(static_cast<std::uint64_t>(value));
  return *this;
}

ProtobufMessage& ProtobufMessage::real64(int field, double value) {
  append_tag(field, kFixed64);
  append_little_endian(bytes_, std::bit_cast<std::uint64_t>(value));
  return *this;
}

ProtobufMessage& ProtobufMessage::real32(int field, float value) {
  append_tag(field, kFixed32);
  append_little_endian(bytes_, std::bit_cast<std::uint32_t>(value));
  return *this;
}

ProtobufMessage& ProtobufMessage::text(int field, std::string_view value) {
  if (is_utf8(value)) return bytes(field, value);
  std::string ascii(value);
  for (char& letter : ascii) letter = static_cast<unsigned char>(letter) < 0x80 ? letter : '?';
  return bytes(field, ascii);
}

ProtobufMessage& ProtobufMessage::bytes(int field, std::string_view value) {
  append_tag(field, kLengthDelimited);
  append_varint(value.size());
  bytes_ += value;
  return *this;
}

void ProtobufMessage::append_tag(int field, unsigned wire_type) {
  append_varint(static_cast<std::uint64_t>(field) << 3 | wire_type);
}

void ProtobufMessage::append_varint(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
  bytes_ += static_cast<char>(value);
}

}  // namespace lockstep::detail
