// Lists of ranks, in words.
#pragma once

#include <span>
#include <string>

namespace lockstep::rendezvous {

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

}  // namespace lockstep::rendezvous
