// What launchers on different hosts tell each other: the payload for the stdin of a remote shell, and lines
// of its stderr.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/rank_observer.h"

namespace lockstep::launch {

/// `lockstep ARGUMENTS` in a folder, with variables beside those of that host.
struct RemoteCommandPayload {
  std::string version;    ///< of the lockstep that wrote it
  std::string directory;  ///< absolute
  std::map<std::string, std::string> variables = {};
  std::vector<std::string> arguments = {};  ///< beginning with the verb
};

/// A line with the number of bytes, then texts that each end with a zero byte.
std::string encode(const RemoteCommandPayload& payload);

/// Reads one payload, and no byte more. Blocks until it is there.
/// @throws Error when what comes is something else, or ends before its time
RemoteCommandPayload read_payload(int fd);

/// Decodes what follows the first line. @throws Error as above
RemoteCommandPayload decode_payload(std::string_view bytes);

inline constexpr std::string_view kGo = "go";           ///< ranks may be started
inline constexpr std::string_view kSignal = "signal ";  ///< and a number: to be passed on to the ranks

/// A report of a node.
struct NodeReport {
  bool is_ready = false;  ///< the node has its payload, and waits for kGo
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
