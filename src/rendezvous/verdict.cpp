#include "rendezvous/verdict.h"

#include <nlohmann/json.hpp>

namespace lockstep::rendezvous {

using nlohmann::json;

void raise(const Verdict& verdict, const std::string& where) {
  auto parts = verdict.parts;
  parts.where = where;
  switch (verdict.failure) {
    case Failure::kPeerLost:
      throw PeerLost("comm", parts, verdict.ranks);
    case Failure::kTimeout:
      throw Timeout("comm", parts, verdict.ranks);
    case Failure::kMismatch:
      break;
  }
  throw CollectiveMismatch("comm", parts, verdict.ranks);
}

std::string to_payload(const Verdict& verdict) {
  return json{{"failure", verdict.failure},         {"ranks", verdict.ranks},   {"what", verdict.parts.what},
              {"expected", verdict.parts.expected}, {"got", verdict.parts.got}, {"hint", verdict.parts.hint}}
      .dump();
}

Verdict verdict_from(std::string_view payload) {
  const auto object = json::parse(payload);
  return {.failure = object.at("failure").get<Failure>(),
          .ranks = object.at("ranks"),
          .parts = {.what = object.at("what"),
                    .expected = object.at("expected"),
                    .got = object.at("got"),
                    .hint = object.at("hint")}};
}

std::string to_payload(const Whereabouts& whereabouts) {
  return json{{"is_waiting", whereabouts.is_waiting},
              {"is_stuck", whereabouts.is_stuck},
              {"missing", whereabouts.missing},
              {"text", whereabouts.text}}
      .dump();
}

Whereabouts whereabouts_from(std::string_view payload) {
  const auto object = json::parse(payload);
  return {.is_waiting = object.at("is_waiting"),
          .is_stuck = object.at("is_stuck"),
          .missing = object.at("missing"),
          .text = object.at("text")};
}

}  // namespace lockstep::rendezvous
