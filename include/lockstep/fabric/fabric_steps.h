// What a Fabric gives a loop of one's own for its steps: optimizers, whose steps go through the strategy;
// scopes, whose effect ends with them; and CapturedStep for batches of any type.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/data/any_loader.h>
#include <lockstep/device/captured_step.h>
#include <lockstep/device/scalar.h>
#include <lockstep/optim/grad_norm.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/parallel/deferred_init.h>
#include <lockstep/precision/forward_scope.h>
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
  /// The optimizer itself.
  operator Optimizer&() { return *optimizer_; }

  /// torch's class name, such as "AdamW".
  std::string_view name() const { return optimizer_->name(); }
  /// The groups of the optimizer, to change learning rates.
  std::vector<Optimizer::Group>& groups() { return optimizer_->groups(); }
  /// The parameters that the optimizer steps.
  const std::vector<NamedParameter>& parameters() const { return optimizer_->parameters(); }

 private:
  std::shared_ptr<Strategy> strategy_;
  std::shared_ptr<Precision> precision_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<std::shared_ptr<FabricCallback>> callbacks_;
  GradientClip clip_;
};

namespace detail {
struct TrainedModule;
}

/// Backward passes within it add up gradients of a model locally and send nothing. Scopes nest.
class LOCKSTEP_API NoBackwardSync {
 public:
  /// For Fabric. Null: no effect.
  explicit NoBackwardSync(std::shared_ptr<detail::TrainedModule> module);
  ~NoBackwardSync();
  NoBackwardSync(const NoBackwardSync&) = delete;
  NoBackwardSync& operator=(const NoBackwardSync&) = delete;

 private:
  std::shared_ptr<detail::TrainedModule> module_;
};

/// Models constructed within it have parameters of the precision's element type, float32 but for those of
/// "true" precisions, whatever the default element type is otherwise. Under a strategy that shards parameters
/// they have no memory yet: see DeferredInit.
class LOCKSTEP_API InitScope {
 public:
  /// For Fabric.
  InitScope(at::ScalarType dtype, bool defers) : scope_(dtype) {
    if (defers) deferral_.emplace();
  }

 private:
  DefaultDtypeScope scope_;
  std::optional<DeferredInit> deferral_;
};

namespace detail {
[[noreturn]] LOCKSTEP_API void refuse_batch_without_tensors();
}

/// What Fabric::capture() gives: a step that takes a batch and returns its loss, captured as CapturedStep
/// says. The tensors of a batch are found as loaders find them (data/any_loader.h); what else a batch holds
/// is that of the recorded one in all replays.
template <class Batch>
class CapturedBatchStep {
 public:
  /// A step: a batch in, the loss out.
  using Function = std::function<at::Tensor(const Batch&)>;

  /// As CapturedStep.
  CapturedBatchStep(at::Device device, Function function, int warm_up, CapturedStep::Around around = {})
      : has_device_(!device.is_cpu()),
        batch_(std::make_unique<const Batch*>()),
        step_(
            device,
            [batch = batch_.get(), function = std::move(function)](const CapturedStep::Tensors& inputs) {
              std::size_t next = 0;
              const auto place = [&](const at::Tensor&) { return inputs.at(next++); };
              return CapturedStep::Tensors{function(detail::with_changed_tensors(**batch, place))};
            },
            warm_up, std::move(around)) {}

  /// One step; the loss is overwritten by the next one. Collective where the function is.
  /// @throws ConfigError for a batch on a device in which no tensor is found
  at::Tensor operator()(const Batch& batch) {
    CapturedStep::Tensors inputs;
    detail::with_changed_tensors(batch, [&](const at::Tensor& tensor) {
      inputs.push_back(tensor);
      return tensor;
    });
    if (has_device_ && inputs.empty()) detail::refuse_batch_without_tensors();
    *batch_ = &batch;
    return step_(inputs).front();
  }

  /// As those of CapturedStep.
  std::int64_t replays() const { return step_.replays(); }
  /// Why the step cannot be recorded; empty: it can, or nobody tried.
  const std::string& refusal() const { return step_.refusal(); }

 private:
  bool has_device_;
  std::unique_ptr<const Batch*> batch_;  // that of the call under way
  CapturedStep step_;
};

}  // namespace lockstep
