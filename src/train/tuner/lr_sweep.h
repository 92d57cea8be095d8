// Raises the learning rate with every optimizer step and writes down what becomes of the loss.
#pragma once

#include <lockstep/train/lr_find_result.h>

#include "train/loops/trainer_state.h"

namespace lockstep::detail {

/// A callback of the fit whose state it borrows. Each step's loss is the mean over ranks, so that all of
/// them see the same curve and stop together.
class LrSweep final : public Callback {
 public:
  LrSweep(const RunSetup& setup, StopState& stop, const LrFindOptions& options)
      : setup_(setup), stop_(stop), options_(options), result_{.mode = options.mode} {}

  void on_train_batch_start(StepContext& step) override;
  void on_train_batch_end(StepContext& step, const TrainOutput& output) override;

  const LrFindResult& result() const { return result_; }

 private:
  double lr_of(std::int64_t step) const;
  void add(double loss);
  bool diverges(double smoothed) const;

  const RunSetup& setup_;
  StopState& stop_;
  const LrFindOptions& options_;
  LrFindResult result_;
  std::int64_t steps_ = 0;  // of the optimizer
  double mean_ = 0;         // of the losses so far, the older the less
  double best_ = 0;
};

}  // namespace lockstep::detail
