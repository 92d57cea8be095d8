// What strategies have in common whose ranks all hold the whole model, and whose engines average gradients.
#pragma once

#include <memory>

#include <lockstep/comm/communicator.h>
#include <lockstep/optim/grad_norm.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/strategy/strategy.h>

#include "strategy/engine_table.h"
#include "strategy/same_optimizer.h"

namespace lockstep {

/// `Engine` has after_step() and check_replicas().
template <class Engine>
class ReplicatedStrategy : public Strategy {
 public:
  const Communicator& communicator() const override { return communicator_; }

  void release_module(const torch::nn::Module& module) override {
    auto& row = engines_.of(module);
    row.engine = nullptr;
    row.awaits_step = false;
  }

  std::unique_ptr<Optimizer> setup_optimizer(torch::nn::Module& module,
                                             const OptimizerFactory& factory) override {
    auto& row = engines_.of(module);
    auto optimizer = Strategy::setup_optimizer(module, factory);
    detail::require_same_optimizer(*optimizer, communicator_);
    engines_.add(row, *optimizer);
    return optimizer;
  }

  Scalar clip_gradients_lazily(Optimizer& optimizer, const GradientClip& clip) override {
    return lockstep::clip_gradients_lazily(trained_parameters(optimizer), clip);
  }

  void optimizer_step(Optimizer& optimizer) override {
    auto& row = engines_.of(optimizer);
    optimizer.step();
    end_step(row);
  }

  double optimizer_step_with(Optimizer& optimizer, const Optimizer::Closure& closure) override {
    auto& row = engines_.of(optimizer);
    const double loss = optimizer.step_with(closure);
    end_step(row);
    return loss;
  }

  void skip_optimizer_step(Optimizer& optimizer) override { end_step(engines_.of(optimizer)); }

  void check_replicas(torch::nn::Module& module) override {
    if (const auto* const row = engines_.find(module); row && row->engine) row->engine->check_replicas();
  }

  void teardown() override { engines_ = {}; }

 protected:
  using Engines = detail::EngineTable<Engine>;

  /// An optimizer of the module has stepped, or its step was left out.
  virtual void end_step(typename Engines::Row& row) { Engines::end_step(row); }

  Communicator communicator_;
  Engines engines_;  // before the group that they communicate through, in destruction
};

}  // namespace lockstep
