#include "train/stopping/agreed_clock.h"

#include <algorithm>

#include <lockstep/torch.h>

namespace lockstep::detail {

namespace {
constexpr std::chrono::seconds kBetweenWords{1};
constexpr int kWordsPerInterval = 10;
constexpr std::int64_t kMostSteps = 1'000'000;
}  // namespace

void AgreedClock::restart(Duration elapsed) {
  asked_ = Clock::now();
  start_ = asked_ - elapsed;
  steps_ = 0;
  until_word_ = 1;
}

bool AgreedClock::is_due(const Communicator& communicator) {
  if (communicator.size() == 1) return elapsed() >= interval_;
  if (++steps_ < until_word_) return false;
  const auto word =
      torch::tensor({std::int64_t{elapsed() >= interval_}, steps_until_next_word()}, torch::kLong);
  communicator.broadcast(word, 0);
  asked_ = Clock::now();
  steps_ = 0;
  until_word_ = word[1].item<std::int64_t>();
  return word[0].item<std::int64_t>() != 0;
}

// As many steps as were made lately in the time that is to pass.
std::int64_t AgreedClock::steps_until_next_word() const {
  const auto wanted = std::min<Duration>(kBetweenWords, interval_ / kWordsPerInterval);
  const auto taken = std::max<Duration>(Clock::now() - asked_, Duration(1));
  const double steps =
      static_cast<double>(steps_) * static_cast<double>(wanted.count()) / static_cast<double>(taken.count());
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(steps), 1, kMostSteps);
}

}  // namespace lockstep::detail
