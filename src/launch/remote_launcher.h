// A launcher that the launcher of another host has started over a remote shell: the payload on its stdin, the
// orders that follow, and the lines with which it reports on its stderr.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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

/// The orders of the launcher that has started this one, read from stdin, which is /dev/null for everybody
/// else from then on. A line `signal N` sends that signal to this process. The end of stdin means that the
/// other launcher or the connection is gone: then this process kills its descendants and itself.
class StarterLink final : public RankObserver {
 public:
  /// @throws Error without descriptors
  StarterLink();

  /// Sets whether a failure will be followed by a restart; then it is not reported.
  void set_may_restart(bool may) { may_restart_ = may; }

  void add_to(std::vector<pollfd>& watched) const override;
  void look() override;
  std::string last_stderr_lines(int) const override { return {}; }
  void on_failure(const Failure& failure, Blame blame, int exit_code, const std::string& words) override;
  std::string take_news() override { return std::exchange(news_, {}); }

 private:
  void obey(std::string_view line) const;

  UniqueFd stdin_;
  std::string begun_ = {};  ///< an unfinished line
  std::string news_ = {};   ///< reports that were not sent yet
  bool may_restart_ = false;
};

}  // namespace lockstep::launch
