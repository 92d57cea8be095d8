#include "rendezvous/whereabouts.h"

#include <nlohmann/json.hpp>

namespace lockstep::rendezvous {

using nlohmann::json;

std::string to_payload(const Whereabouts& whereabouts) {
  return json{{"doing", whereabouts.doing}, {"missing", whereabouts.missing}, {"text", whereabouts.text}}
      .dump();
}

Whereabouts whereabouts_from(std::string_view payload) {
  const auto object = json::parse(payload);
  return {
      .doing = object.at("doing").get<Doing>(), .missing = object.at("missing"), .text = object.at("text")};
}

std::string to_payload(const Trail& trail) {
  auto hops = json::array();
  for (const auto& [rank, number, group, text] : trail.hops) hops.push_back({rank, number, group, text});
  return json{{"number", trail.number}, {"hops", hops}}.dump();
}

Trail trail_from(std::string_view payload) {
  const auto object = json::parse(payload);
  Trail trail{.number = object.at("number")};
  for (const auto& hop : object.at("hops"))
    trail.hops.push_back({.rank = hop.at(0), .number = hop.at(1), .group = hop.at(2), .text = hop.at(3)});
  return trail;
}

}  // namespace lockstep::rendezvous
