// When a rank that waits for others in a meeting does what.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/sockets.h"

namespace lockstep::rendezvous {

class WaitSchedule {
 public:
  /// Of a wait that begins now.
  explicit WaitSchedule(Deadline deadline) : deadline_(deadline) {}

  /// Whether to ask those that are missing; ever more rarely.
  bool is_time_to_ask(Deadline now) {
    if (now < ask_at_) return false;
    pause_ = std::min(2 * pause_, kRareQuestions);
    ask_at_ = now + pause_;
    return true;
  }

  /// Called while members are known to differ: whether those that are missing have had a moment to come, too.
  /// Who does not decide leaves it to the one that does for as long again.
  bool is_time_to_judge(Deadline now, bool decides) {
    differs_since_ = std::min(differs_since_, now);
    judge_at_ = std::min(differs_since_ + (decides ? kGrace : 2 * kGrace), deadline_);
    return now >= judge_at_;
  }

  /// How long the wait may sleep.
  Deadline next_step(Deadline now) const {
    return now < begin_ + kSpin ? now : std::min({ask_at_, judge_at_, deadline_});
  }

 private:
  using milliseconds = std::chrono::milliseconds;
  static constexpr auto kSpin = std::chrono::microseconds(50);  // sleeping and waking cost as much
  static constexpr auto kFirstQuestion = milliseconds(50);
  static constexpr auto kRareQuestions = milliseconds(1000);
  static constexpr auto kGrace = milliseconds(40);

  Deadline deadline_;
  Deadline begin_ = std::chrono::steady_clock::now();
  milliseconds pause_ = kFirstQuestion;
  Deadline ask_at_ = begin_ + pause_;
  Deadline differs_since_ = Deadline::max();
  Deadline judge_at_ = Deadline::max();
};

}  // namespace lockstep::rendezvous
