// An optimizer as Fabric::setup() gives it: its steps go through the strategy.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/device/scalar.h>
#include <lockstep/optim/grad_norm.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/precision/precision.h>
#include <lockstep/strategy/strategy.h>

namespace lockstep {

// What is told of the steps of an own loop.

class FabricOptimizer;

/// Base of the callbacks in FabricOptions::callbacks. Hooks of your own are functions of an interface of your
/// own, which callbacks derive from as well and which Fabric::call() calls.
class LOCKSTEP_API FabricCallback {
 public:
  virtual ~FabricCallback();

  /// After every FabricOptimizer::step().
  virtual void on_after_optimizer_step(FabricOptimizer& /*optimizer*/) {}
};

/// Owns an Optimizer; shares the strategy that made it. Converts to the Optimizer where one is asked for:
/// `ls::Scheduler scheduler(ls::StepLR{.step_size = 10}, *optimizer);`
class LOCKSTEP_API FabricOptimizer {
 public:
  /// For Fabric. Every step begins with `clip`.
  FabricOptimizer(std::shared_ptr<Strategy> strategy, std::shared_ptr<Precision> precision,
                  std::unique_ptr<Optimizer> optimizer,
                  std::vector<std::shared_ptr<FabricCallback>> callbacks, const GradientClip& clip = {});

  /// One update of the parameters, then the callbacks' on_after_optimizer_step. Returns 1 where there was an
  /// update, else 0: precision 16-mixed leaves it out when gradients have overflowed. Who reads that may wait
  /// for a device. Clips them first where a file of DeepSpeed says so. Collective.
  Scalar step();

  /// Forgets the gradients; or fills them with zeros in place.
  void zero_grad(bool set_to_none = true);

  /// The optimizer within. Its own step() leaves out what the strategy does; call step() of this.
  Optimizer& optimizer() { return *optimizer_; }
  operator Optimizer&() { return *optimizer_; }

  /// torch's class name, such as "AdamW".
  std::string_view name() const { return optimizer_->name(); }
  std::vector<Optimizer::Group>& groups() { return optimizer_->groups(); }
  const std::vector<NamedParameter>& parameters() const { return optimizer_->parameters(); }

 private:
  std::shared_ptr<Strategy> strategy_;
  std::shared_ptr<Precision> precision_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<std::shared_ptr<FabricCallback>> callbacks_;
  GradientClip clip_;
};

}  // namespace lockstep
