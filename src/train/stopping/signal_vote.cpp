#include "train/stopping/signal_vote.h"

#include <algorithm>

#include <lockstep/torch.h>

namespace lockstep::detail {

namespace {
constexpr std::chrono::milliseconds kBetweenVotes{500};
constexpr std::int64_t kMostStepsBetween = 100;  // steps may become slow
}  // namespace

StopSignal SignalVote::take(StopSignal own, const Communicator& communicator) {
  if (communicator.size() == 1) return own;
  if (++steps_ < until_word_) return StopSignal::kNone;
  const auto word = torch::tensor({static_cast<std::int64_t>(own), steps_until_next_word()}, torch::kLong);
  communicator.all_reduce(word, ReduceOp::kMax);
  asked_ = Clock::now();
  steps_ = 0;
  until_word_ = word[1].item<std::int64_t>();
  return static_cast<StopSignal>(word[0].item<std::int64_t>());
}

// As many steps as were made lately in the time that is to pass.
std::int64_t SignalVote::steps_until_next_word() const {
  const std::chrono::duration<double> taken = Clock::now() - asked_, wanted = kBetweenVotes;
  const auto steps = static_cast<double>(steps_) * wanted.count() / std::max(taken.count(), 1e-6);
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(steps), 1, kMostStepsBetween);
}

}  // namespace lockstep::detail
