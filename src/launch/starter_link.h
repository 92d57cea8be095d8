// The stdin of a launcher that another host's launcher has started: its orders, and its life.
#pragma once

#include <utility>

#include "launch/rank_observer.h"
#include "launch/remote_command_payload.h"

namespace lockstep::launch {

/// From its making on, stdin is /dev/null for everybody else. A line `signal N` is carried out as a signal to
/// this process. When stdin ends, its other side or the way to it is gone: then this process kills all that
/// is below it, and itself.
class StarterLink final : public RankObserver {
 public:
  /// @throws Error without descriptors
  StarterLink();

  /// Whether a failure will be followed by a restart, which nobody else need hear of.
  void set_may_restart(bool may) { may_restart_ = may; }

  void add_to(std::vector<pollfd>& watched) const override;
  void look() override;
  std::string last_words(int) const override { return {}; }
  void on_failure(const Failure& failure, Blame blame, int exit_code, const std::string& words) override;
  std::string take_news() override { return std::exchange(news_, {}); }

 private:
  void obey(std::string_view line) const;

  UniqueFd stdin_;
  std::string begun_ = {};  ///< a line that is not over
  std::string news_ = {};   ///< for the other side, not yet said
  bool may_restart_ = false;
};

}  // namespace lockstep::launch
