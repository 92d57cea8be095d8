// Why a job has failed, in a form that travels between ranks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/error.h>

#include "rendezvous/message.h"

namespace lockstep::rendezvous {

enum class Failure { kPeerLost, kTimeout, kMismatch };

struct Verdict {
  Failure failure = Failure::kPeerLost;
  std::vector<int> ranks = {};  ///< those that it is about
  ErrorParts parts = {};        ///< all but `where`, which is each rank's own
};

/// Throws PeerLost, Timeout or CollectiveMismatch.
[[noreturn]] void raise(const Verdict& verdict, const std::string& where);

/// What a rank is doing, as it tells others.
struct Whereabouts {
  bool is_waiting = false;        ///< within a meeting
  bool is_stuck = false;          ///< and so is the only thread of it that starts any
  std::vector<int> missing = {};  ///< ranks that it waits for
  std::string text = {};          ///< of what it is doing, in words
};

std::string to_payload(const Verdict& verdict);
std::string to_payload(const Whereabouts& whereabouts);
Verdict verdict_from(std::string_view payload);
Whereabouts whereabouts_from(std::string_view payload);

}  // namespace lockstep::rendezvous
