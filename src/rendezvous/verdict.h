// Why a job has failed, in a form that is sent between ranks.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/export.h>

namespace lockstep::rendezvous {

// Lists of ranks as text.

/// "0, 2".
inline std::string joined(std::span<const int> ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

/// "rank 2", "ranks 0, 2".
inline std::string ranks_text(std::span<const int> ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + joined(ranks);
}

enum class Failure { kPeerLost, kTimeout, kMismatch, kOther };

struct Verdict {
  Failure failure = Failure::kPeerLost;
  std::vector<int> ranks = {};  ///< the ranks that it is about
  ErrorParts parts = {};        ///< `where` is not sent: each rank has its own
};

/// Throws PeerLost, Timeout, CollectiveMismatch or CommError.
[[noreturn]] LOCKSTEP_API void raise(const Verdict& verdict, const std::string& where = {});

LOCKSTEP_API std::string to_payload(const Verdict& verdict);
LOCKSTEP_API Verdict verdict_from(std::string_view payload);

}  // namespace lockstep::rendezvous
