// The order in which the models of one backward send.
#pragma once

#include <functional>
#include <vector>

namespace lockstep::detail {

/// Gradients of several models become ready in the order of each rank's own graph; collectives must come in
/// one order everywhere. So each model sends in its turn: what it wants to send earlier waits.
class ReductionTurn {
 public:
  /// Before a backward: the turn comes when that of `before` has ended; null: at once.
  void begin(ReductionTurn* before);

  /// Runs `send`, now or when the turn comes.
  void send(std::function<void()> send);

  /// Nothing more follows in this backward: the next model's turn comes.
  void end();

  bool has_come() const { return has_come_; }
  bool has_ended() const { return has_ended_; }

 private:
  void come();

  ReductionTurn* next_ = nullptr;
  std::vector<std::function<void()>> waiting_;
  bool has_come_ = false;
  bool has_ended_ = false;  // which may be before it comes
};

}  // namespace lockstep::detail
