#include "launch/node_messages.h"

#include <nlohmann/json.hpp>

namespace lockstep::launch {

using Json = nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(JoinRequest, run_id, min_nodes, max_nodes, nprocs, role, node_rank, host,
                                   boot_id, pid, hosts, address, port, num_rounds, num_restarts)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Round, number, restarts, node_rank, num_nodes, first_rank, world_size,
                                   first_role_rank, role_world_size, main_address, main_port)

namespace {

// The texts of errors may hold any bytes.
std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

template <class Message, class Parse>
Expected<Message> parsed(std::string_view text, Parse parse) {
  try {
    return parse(Json::parse(text));
  } catch (const Json::exception& error) {
    return Unexpected{std::string(error.what())};
  }
}

template <class Kind>
Kind kind_in(const Json& json) {
  const auto text = json.at("kind").get<std::string>();
  return static_cast<Kind>(text.empty() ? '?' : text.front());
}

}  // namespace

std::string to_text(const NodeMessage& message) {
  Json json = {{"kind", std::string(1, message.kind)}};
  if (message.kind == NodeMessage::kJoin) json["join"] = message.join;
  if (message.kind == NodeMessage::kLeave) json["signal"] = message.signal;
  if (message.kind == NodeMessage::kFailed) {
    json["cause"] = message.failure.cause;
    json["blame"] = static_cast<int>(message.failure.blame);
    json["exit_code"] = message.failure.exit_code;
  }
  return dump(json);
}

std::string to_text(const HostMessage& message) {
  Json json = {{"kind", std::string(1, message.kind)}, {"text", message.text}};
  if (message.kind == HostMessage::kRound) json["round"] = message.round;
  json["is_own"] = message.is_own;
  json["exit_code"] = message.exit_code;
  return dump(json);
}

Expected<NodeMessage> parse_node_message(std::string_view text) {
  return parsed<NodeMessage>(text, [](const Json& json) {
    NodeMessage message{.kind = kind_in<NodeMessage::Kind>(json)};
    if (message.kind == NodeMessage::kJoin) message.join = json.at("join").get<JoinRequest>();
    if (message.kind == NodeMessage::kLeave) message.signal = json.at("signal").get<int>();
    if (message.kind == NodeMessage::kFailed)
      message.failure = {.cause = json.at("cause").get<std::string>(),
                         .blame = static_cast<Blame>(json.at("blame").get<int>()),
                         .exit_code = json.at("exit_code").get<int>()};
    return message;
  });
}

Expected<HostMessage> parse_host_message(std::string_view text) {
  return parsed<HostMessage>(text, [](const Json& json) {
    HostMessage message{.kind = kind_in<HostMessage::Kind>(json)};
    if (message.kind == HostMessage::kRound) message.round = json.at("round").get<Round>();
    message.text = json.at("text").get<std::string>();
    message.is_own = json.at("is_own").get<bool>();
    message.exit_code = json.at("exit_code").get<int>();
    return message;
  });
}

}  // namespace lockstep::launch
