#include "train/stopping/stop_vote.h"

#include <chrono>

#include <lockstep/torch.h>

namespace lockstep::detail {
namespace {

constexpr std::int64_t kStepsBetweenVotes = 50;  // where log_every_n_steps names no number
constexpr auto kTimeBetweenVotes = std::chrono::milliseconds(500);

}  // namespace

void StopVote::begin(bool by_the_clock) {
  if (setup_.communicator().size() > 1 && by_the_clock) clock_.emplace(kTimeBetweenVotes);
}

void StopVote::take() {
  if (setup_.communicator().size() == 1) return;
  const auto votes = torch::full({1}, stop_.is_wanted() ? 1 : 0, torch::kInt);
  setup_.communicator().all_reduce(votes, ReduceOp::kMax);
  stop_.agreed = votes.item<int>() != 0;
}

void StopVote::take_in_time(bool stepped, std::int64_t batches_that_stepped) {
  const bool has_no_rows = setup_.options.log_every_n_steps <= 0;
  if (has_no_rows && stepped && (batches_that_stepped + 1) % kStepsBetweenVotes == 0) return take();
  if (!clock_ || !clock_->is_due(setup_.communicator())) return;
  clock_->restart();
  take();
}

}  // namespace lockstep::detail
