#include "train/stopping/stop_vote.h"

#include <algorithm>
#include <chrono>

#include <lockstep/torch.h>
#include <lockstep/train/callbacks/timer.h>

namespace lockstep::detail {
namespace {

constexpr std::int64_t kStepsBetweenVotes = 50;  // where log_every_n_steps names no number
constexpr auto kTimeBetweenVotes = std::chrono::milliseconds(500);

bool ends_by_the_clock(const RunState& state) {
  return std::ranges::any_of(state.callbacks, [](const auto& callback) {
    return dynamic_cast<const Timer*>(callback.get()) != nullptr;
  });
}

}  // namespace

void StopVote::begin() {
  if (state_.communicator().size() > 1 && ends_by_the_clock(state_)) clock_.emplace(kTimeBetweenVotes);
}

void StopVote::take() {
  if (state_.communicator().size() == 1) return;
  const auto votes = torch::full({1}, state_.wishes_to_stop() ? 1 : 0, torch::kInt);
  state_.communicator().all_reduce(votes, ReduceOp::kMax);
  state_.stop_agreed = votes.item<int>() != 0;
}

void StopVote::take_in_time(bool stepped) {
  const bool has_no_rows = state_.options.log_every_n_steps <= 0;
  if (has_no_rows && stepped && (state_.progress.batches_that_stepped + 1) % kStepsBetweenVotes == 0)
    return take();
  if (!clock_ || !clock_->is_due(state_.communicator())) return;
  clock_->restart();
  take();
}

}  // namespace lockstep::detail
