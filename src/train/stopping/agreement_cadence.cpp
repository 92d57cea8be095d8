#include "train/stopping/agreement_cadence.h"

#include <algorithm>
#include <chrono>

#include <lockstep/torch.h>

namespace lockstep::detail {
namespace {

constexpr std::chrono::seconds kMostBetween{1};
constexpr int kExchangesPerInterval = 10;
constexpr std::int64_t kMostSteps = 1'000'000;

}  // namespace

void AgreementCadence::restart() {
  last_ = Clock::now();
  steps_ = 0;
  until_next_ = 1;
}

std::int64_t AgreementCadence::agree(std::int64_t own, const Communicator& communicator) {
  const auto numbers = torch::tensor({own, steps_until_next()}, torch::kLong);
  if (rule_ == Rule::kRankZero) {
    communicator.broadcast(numbers, 0);
  } else {
    communicator.all_reduce(numbers, ReduceOp::kMax);
  }
  last_ = Clock::now();
  steps_ = 0;
  until_next_ = numbers[1].item<std::int64_t>();
  return numbers[0].item<std::int64_t>();
}

std::int64_t AgreementCadence::steps_until_next() const {
  const auto taken = std::max(Clock::now() - last_, Clock::duration(1));
  const double steps = static_cast<double>(steps_) * static_cast<double>(between_.count()) /
                       static_cast<double>(taken.count());
  return static_cast<std::int64_t>(std::clamp(steps, 1.0, static_cast<double>(most_steps_)));
}

AgreedClock::AgreedClock(Duration interval, Duration elapsed)
    : interval_(interval),
      cadence_(AgreementCadence::Rule::kRankZero,
               std::min<Duration>(kMostBetween, interval / kExchangesPerInterval), kMostSteps) {
  restart(elapsed);
}

void AgreedClock::restart(Duration elapsed) {
  cadence_.restart();
  start_ = AgreementCadence::Clock::now() - elapsed;
}

bool AgreedClock::is_due(const Communicator& communicator) {
  if (communicator.size() == 1) return elapsed() >= interval_;
  if (!cadence_.is_time()) return false;
  return cadence_.agree(elapsed() >= interval_ ? 1 : 0, communicator) != 0;
}

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
