#include <lockstep/fabric/fabric_optimizer.h>

#include "strategy/scaled_step.h"

namespace lockstep {

FabricOptimizer::FabricOptimizer(std::shared_ptr<Strategy> strategy, std::shared_ptr<Precision> precision,
                                 std::unique_ptr<Optimizer> optimizer,
                                 std::vector<std::shared_ptr<FabricCallback>> callbacks,
                                 const GradientClip& clip)
    : strategy_(std::move(strategy)),
      precision_(std::move(precision)),
      optimizer_(std::move(optimizer)),
      callbacks_(std::move(callbacks)),
      clip_(clip) {}

bool FabricOptimizer::step() {
  if (clip_.value > 0) detail::clip_gradients(*strategy_, *precision_, *optimizer_, clip_);
  const bool taken = detail::step_optimizer(*strategy_, *precision_, *optimizer_);
  for (const auto& callback : callbacks_) callback->on_after_optimizer_step(*this);
  return taken;
}

void FabricOptimizer::zero_grad(bool set_to_none) {
  detail::zero_grad(*precision_, *optimizer_, set_to_none);
}

}  // namespace lockstep
