// A host of a job as the launcher sees it that the user started: the process of a remote shell.
#pragma once

#include <deque>
#include <string>

#include "launch/host_messages.h"
#include "launch/outlet.h"
#include "launch/rank_process.h"

namespace lockstep::launch {

/// See above.
class RemoteHost {
 public:
  /// `order` is sent as its stdin can take it.
  RemoteHost(std::string name, RankProcess shell, UniqueFd to_stdin, const std::string& order);

  const std::string& name() const { return name_; }
  RankProcess& shell() { return shell_; }
  const RankProcess& shell() const { return shell_; }
  bool alive() const { return shell_.alive(); }
  bool is_ready() const { return is_ready_; }

  /// A line of its stderr; true: it was meant for us.
  bool hear(std::string_view line);

  void add_to(std::vector<pollfd>& watched) const;
  /// Sends what can be sent at once.
  void flush();
  void send(std::string_view line);

  /// Passes a signal on to its ranks; to the remote shell where there are none yet.
  void pass_on(int signal);
  /// Without patience: what is there ends with its stdin.
  void kill();
  /// Looks whether the remote shell has ended, and waits for it if so.
  void look();

  /// Whether the connection to its ranks has broken, of which nobody there could say a word, or its launcher
  /// was stopped by a signal.
  bool is_lost() const;
  bool has_told_failure() const { return failure_.has_value(); }
  /// From now on it is to blame for nothing.
  void give_up() { shell_.told_to_stop = true; }
  /// Whether it runs, or has done what it was for.
  bool takes_part() const { return alive() || !shell_.end->failed(); }

  /// How far it is to blame for the end of the job.
  Blame blame() const;
  /// In words, beginning with the host.
  std::string cause() const;
  int exit_code() const;

 private:
  std::string name_;
  RankProcess shell_;
  UniqueFd to_stdin_;
  Outlet orders_;
  bool is_ready_ = false;
  std::optional<NodeReport> failure_ = {};
  std::string last_line_ = {};  ///< that it printed on stderr
};

}  // namespace lockstep::launch
