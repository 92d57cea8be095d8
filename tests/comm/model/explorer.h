// Explores all interleavings of a few ranks that share memory, under total store order: a store waits in its
// rank's buffer, where only that rank sees it, and leaves it at any later moment, in order.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "comm/model/replay.h"

namespace lockstep::model {

/// What is to be explored.
struct Model {
  std::vector<std::string> words;            ///< of the memory, by name; all are 0 at first
  std::vector<std::function<void()>> ranks;  ///< their code; at most kMostRanks
  std::vector<int> may_die =
      {};  ///< one of these stops for ever, at any moment; what it has stored still arrives
  std::size_t most_states = 2'000'000;
};

struct Result {
  std::string violation;   ///< empty: all interleavings are right
  std::string trace = {};  ///< the steps that led there
  std::size_t states = 0;  ///< different ones that were found
};

/// Looks at every state that the ranks can come to, until one is wrong: where a rank's own check fails, or
/// ranks wait that nobody will wake. A sleep has no limit of time unless a rank has died.
///
/// States that differ in nothing but how far a rank has come in steps that no other one notices (a store into
/// its own buffer, a fence behind an empty one) count as one. States are told apart by 64 bits of a hash.
Result explore(const Model& model);

}  // namespace lockstep::model
