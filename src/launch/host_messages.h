// What the launcher of another host says to the one that the user started, as lines of its stderr: a remote
// shell brings nothing else back. And, the other way round, lines of its stdin.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "launch/cause.h"

namespace lockstep::launch {

inline constexpr std::string_view kGo = "go";           ///< ranks may be started
inline constexpr std::string_view kSignal = "signal ";  ///< and a number: to be passed on to the ranks

/// A report of a node.
struct NodeReport {
  bool is_ready = false;  ///< the node has its order, and waits for kGo
  // Else a rank has failed, and the node stops the others of its ranks.
  Blame blame = Blame::kNone;
  int exit_code = 0;
  std::string cause = {};  ///< in words, one line
};

/// With a newline at the end.
std::string encode(const NodeReport& message);
/// Nothing where `line`, with or without a newline, is something else.
std::optional<NodeReport> decode_message(std::string_view line);

}  // namespace lockstep::launch
