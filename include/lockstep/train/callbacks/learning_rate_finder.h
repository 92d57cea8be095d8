// LearningRateFinder: a fit that first finds its learning rate.
#pragma once

#include <optional>

#include <lockstep/train/hooks.h>
#include <lockstep/train/lr_find_result.h>
#include <lockstep/train/tuner_options.h>

namespace lockstep {

/// Tuner::lr_find() at the start of fit, whose optimizer and schedule, with update_attr, begin with the rate
/// suggested. A run that goes on from a checkpoint is not searched: it has its rate. Lightning's
/// LearningRateFinder.
class LOCKSTEP_API LearningRateFinder final : public Callback {
 public:
  explicit LearningRateFinder(LrFindOptions options = {});

  /// None before the search.
  const std::optional<LrFindResult>& optimal_lr() const { return optimal_lr_; }

  CallbackPlace place() const override { return CallbackPlace::kTuner; }
  void on_fit_start(TrainContext& context) override;

 private:
  LrFindOptions options_;
  std::optional<LrFindResult> optimal_lr_;
};

}  // namespace lockstep
