#include <lockstep/fabric/fabric_optimizer.h>

namespace lockstep {

FabricOptimizer::FabricOptimizer(std::shared_ptr<Strategy> strategy, std::unique_ptr<Optimizer> optimizer,
                                 std::vector<std::shared_ptr<FabricCallback>> callbacks)
    : strategy_(std::move(strategy)), optimizer_(std::move(optimizer)), callbacks_(std::move(callbacks)) {}

void FabricOptimizer::step() {
  strategy_->optimizer_step(*optimizer_);
  for (const auto& callback : callbacks_) callback->on_after_optimizer_step(*this);
}

}  // namespace lockstep
