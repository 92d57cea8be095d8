// DeepSpeed's memory_breakdown: the memory in use around forward, backward and step.
#pragma once

#include <lockstep/train/hooks.h>

namespace lockstep::detail {

/// Of this process now (MA) and at most (Max_MA), and of the machine. In DeepSpeed's words, a line each.
class MemoryBreakdown final : public Callback {
 public:
  void on_train_batch_start(StepContext& step) override;
  void on_before_backward(StepContext& step, const at::Tensor& loss) override;
  void on_after_backward(StepContext& step) override;
  void on_before_optimizer_step(StepContext& step) override;
  void on_train_batch_end(StepContext& step, const TrainOutput& output) override;

 private:
  bool is_in_step_ = false;
};

}  // namespace lockstep::detail
