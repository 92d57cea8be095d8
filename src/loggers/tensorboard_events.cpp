#include "loggers/tensorboard_events.h"

#include <type_traits>

#include "loggers/protobuf.h"

namespace lockstep::detail {
namespace {

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

}  // namespace lockstep::detail
