#include "loggers/tensorboard_events.h"

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include <lockstep/base/export.h>

#include "formats/file_text.h"

namespace lockstep::detail {
namespace {

// Encodes a message of Protocol Buffers. Fields are written in the order of the calls; `field` is their
// number.
class ProtobufMessage {
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

constexpr unsigned kVarint = 0;
constexpr unsigned kFixed64 = 1;
constexpr unsigned kLengthDelimited = 2;
constexpr unsigned kFixed32 = 5;

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

ProtobufMessage event_at(const EventTime& time) {
  return ProtobufMessage().real64(1, time.wall_time).integer(2, time.step);
}

// Event.summary of one Summary
std::string with_summary(const EventTime& time, const ProtobufMessage& summary) {
  return event_at(time).message(5, summary).encoded();
}

// SummaryMetadata
ProtobufMessage metadata_of(std::string_view plugin, std::string_view content = {}) {
  ProtobufMessage data;
  data.text(1, plugin);
  if (!content.empty()) data.bytes(2, content);
  return ProtobufMessage().message(1, data);
}

// A Summary of HParamsPluginData. TensorBoard's own writer gives it an empty tensor (float, one dimension of
// size 0), without which some readers would not look at it.
std::string hparams_event(const EventTime& time, std::string_view tag, const ProtobufMessage& plugin_data) {
  const auto shape = ProtobufMessage().message(2, ProtobufMessage());
  const auto value = ProtobufMessage()
                         .text(1, tag)
                         .message(8, ProtobufMessage().integer(1, 1).message(2, shape))
                         .message(9, metadata_of("hparams", plugin_data.encoded()));
  return with_summary(time, ProtobufMessage().message(1, value));
}

// google.protobuf.Value
ProtobufMessage value_of(const HyperParameter& param) {
  return std::visit(
      [](const auto& value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, bool>)
          return ProtobufMessage().integer(4, value);
        else if constexpr (std::is_same_v<T, std::string>)
          return ProtobufMessage().text(3, value);
        else
          return ProtobufMessage().real64(2, static_cast<double>(value));
      },
      param);
}

// HParamInfo
ProtobufMessage info_of(const std::string& name, const HyperParameter& param) {
  constexpr int kString = 1, kBool = 2, kFloat64 = 3;
  int type = kFloat64;
  if (std::holds_alternative<bool>(param)) type = kBool;
  if (std::holds_alternative<std::string>(param)) type = kString;
  return ProtobufMessage().text(1, name).integer(4, type);
}

}  // namespace

std::string file_version_event(double wall_time) {
  return ProtobufMessage()
      .real64(1, wall_time)
      .text(3, "brain.Event:2")
      .message(10, ProtobufMessage().text(1, "lockstep"))
      .encoded();
}

std::string scalars_event(const EventTime& time, std::span<const Metric> metrics,
                          std::set<std::string>& described) {
  ProtobufMessage summary;
  for (const auto& [name, value] : metrics) {
    auto row = ProtobufMessage().text(1, name).real32(2, static_cast<float>(value));
    if (described.insert(name).second) row.message(9, metadata_of("scalars"));
    summary.message(1, row);
  }
  return with_summary(time, summary);
}

std::vector<std::string> session_start_events(const EventTime& time, const HyperParameters& params,
                                              std::span<const Metric> metrics) {
  ProtobufMessage experiment, session;
  for (const auto& [name, param] : params) {
    experiment.message(4, info_of(name, param));
    session.message(1, ProtobufMessage().text(1, name).message(2, value_of(param)));
  }
  for (const auto& metric : metrics) {
    const auto metric_name = ProtobufMessage().text(2, metric.first);
    experiment.message(5, ProtobufMessage().message(1, metric_name));
  }
  session.real64(5, time.wall_time);
  return {hparams_event(time, "_hparams_/experiment", ProtobufMessage().message(2, experiment)),
          hparams_event(time, "_hparams_/session_start_info", ProtobufMessage().message(3, session))};
}

std::string session_end_event(const EventTime& time, bool success) {
  constexpr int kSuccess = 1, kFailure = 2;
  const auto session = ProtobufMessage().integer(1, success ? kSuccess : kFailure).real64(2, time.wall_time);
  return hparams_event(time, "_hparams_/session_end_info", ProtobufMessage().message(4, session));
}

namespace {

constexpr std::array<std::uint32_t, 256> kTable = [] {
  constexpr std::uint32_t kPolynomial = 0x82f63b78;  // Castagnoli's, bits reversed
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? kPolynomial : 0);
    table[byte] = rest;
  }
  return table;
}();

// A checksum stored beside what it was made of would weaken one made over both.
std::uint32_t masked(std::uint32_t checksum) { return std::rotr(checksum, 15) + 0xa282ead8; }

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t rest = ~0u;
  for (const char byte : bytes) rest = kTable[(rest ^ static_cast<unsigned char>(byte)) & 0xff] ^ (rest >> 8);
  return ~rest;
}

std::string tfrecord(std::string_view bytes) {
  std::string record;
  append_little_endian(record, std::uint64_t{bytes.size()});
  append_little_endian(record, masked(crc32c(record)));
  record += bytes;
  append_little_endian(record, masked(crc32c(bytes)));
  return record;
}

}  // namespace lockstep::detail
