#include "parallel/ddp/reduction_turn.h"

#include <utility>

namespace lockstep::detail {

void ReductionTurn::begin(ReductionTurn* before) {
  *this = {};
  has_come_ = !before;
  if (before) before->next_ = this;
}

void ReductionTurn::send(std::function<void()> send) {
  if (has_come_) return send();
  waiting_.push_back(std::move(send));
}

void ReductionTurn::end() {
  has_ended_ = true;
  if (has_come_ && next_) next_->come();
}

void ReductionTurn::come() {
  has_come_ = true;
  for (const auto& send : std::exchange(waiting_, {})) send();
  if (has_ended_ && next_) next_->come();
}

}  // namespace lockstep::detail
