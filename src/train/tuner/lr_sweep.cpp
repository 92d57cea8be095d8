#include "train/tuner/lr_sweep.h"

#include <cmath>
#include <utility>

namespace lockstep::detail {

// Lightning's: the second of the equal distances is left out.
double LrSweep::lr_of(std::int64_t step) const {
  const double share =
      step == 0 ? 0 : static_cast<double>(step + 1) / static_cast<double>(options_.num_training);
  if (options_.mode == LrFindMode::kLinear)
    return options_.min_lr + share * (options_.max_lr - options_.min_lr);
  return options_.min_lr * std::pow(options_.max_lr / options_.min_lr, share);
}

void LrSweep::on_train_batch_start(StepContext& step) {
  for (auto& group : step.optimizer().groups()) group.lr = group.initial_lr = lr_of(std::ssize(result_.lr));
}

void LrSweep::on_train_batch_end(StepContext& step, const TrainOutput& output) {
  const auto before = std::exchange(steps_, step.global_step());
  if (before == steps_) return;  // within a window of accumulated gradients
  result_.lr.push_back(lr_of(std::ssize(result_.lr)));
  add(setup_.mean_over_ranks(output.loss));
}

// Lightning's threshold * best, but for negative losses, of which that would be below the best.
bool LrSweep::diverges(double smoothed) const {
  const auto& threshold = options_.early_stop_threshold;
  return threshold && smoothed > best_ + (*threshold - 1) * std::abs(best_);
}

// Lightning's divisor, whose power is one step ahead.
void LrSweep::add(double loss) {
  constexpr double kBeta = 0.98;
  const auto steps = static_cast<double>(result_.lr.size());
  mean_ = kBeta * mean_ + (1 - kBeta) * loss;
  const double smoothed = mean_ / (1 - std::pow(kBeta, steps + 1));
  if (steps > 1 && diverges(smoothed)) stop_.requested = stop_.agreed = true;
  if (steps == 1 || smoothed < best_) best_ = smoothed;
  result_.loss.push_back(smoothed);
}

}  // namespace lockstep::detail
