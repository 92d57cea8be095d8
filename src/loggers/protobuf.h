// Writes Protocol Buffers messages: the few kinds of fields that event files need.
// https://protobuf.dev/programming-guides/encoding
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// A message in the making. Fields are written in the order of the calls; `field` is their number.
class LOCKSTEP_API ProtobufMessage {
 public:
  /// bool, enums and all integers but sint, fixed and sfixed.
  ProtobufMessage& integer(int field, std::int64_t value);
  /// double
  ProtobufMessage& real64(int field, double value);
  /// float
  ProtobufMessage& real32(int field, float value);
  /// string; every byte of a text that is no UTF-8 and no ASCII becomes '?', since readers refuse the message
  ProtobufMessage& text(int field, std::string_view value);
  /// bytes
  ProtobufMessage& bytes(int field, std::string_view value);
  /// A message within this one.
  ProtobufMessage& message(int field, const ProtobufMessage& value) { return bytes(field, value.bytes_); }

  /// What was written so far.
  const std::string& encoded() const { return bytes_; }

 private:
  void append_tag(int field, unsigned wire_type);
  void append_varint(std::uint64_t value);

  std::string bytes_;
};

}  // namespace lockstep::detail
