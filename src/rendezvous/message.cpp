#include "rendezvous/message.h"

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
      throw CollectiveMismatch("comm", parts, verdict.ranks);
    case Failure::kOther:
      break;
  }
  throw CommError("comm", parts, verdict.ranks);
}

std::string to_payload(const Verdict& verdict) {
  return json{{"failure", verdict.failure},         {"ranks", verdict.ranks},   {"what", verdict.parts.what},
              {"expected", verdict.parts.expected}, {"got", verdict.parts.got}, {"hint", verdict.parts.hint}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
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

}  // namespace lockstep::rendezvous
