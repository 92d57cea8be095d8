// GradientAccumulationScheduler: other accumulation windows from some epochs on.
#pragma once

#include <lockstep/train/batch_counts.h>
#include <lockstep/train/hooks.h>

namespace lockstep {

/// `GradientAccumulationScheduler({{4, 2}})` accumulates 2 micro-batches per step from epoch 4 on, and 1
/// before. The same as TrainerOptions::accumulate_grad_batches with such a schedule, for callbacks that a
/// module brings along. Lightning's GradientAccumulationScheduler.
class LOCKSTEP_API GradientAccumulationScheduler final : public Callback {
 public:
  /// `scheduling` gives micro-batches per optimizer step by the epoch from which they hold.
  /// @throws ConfigError when it is empty, for an epoch below 0 and for fewer than 1 micro-batch
  explicit GradientAccumulationScheduler(AccumulationSchedule::Steps scheduling);

  /// What it was made with.
  const AccumulationSchedule& schedule() const { return schedule_; }

  /// @throws ConfigError when the Trainer has accumulate_grad_batches as well
  void setup(TrainContext& context) override;

 private:
  AccumulationSchedule schedule_;
};

}  // namespace lockstep
