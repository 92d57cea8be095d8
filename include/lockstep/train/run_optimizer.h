// An optimizer of a run, what steps its learning rate, and how training_step sees it in manual optimisation.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/device/scalar.h>
#include <lockstep/optim/grad_norm.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/optim/scheduler.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

/// Made from what configure_optimizers() returned; owned by the Trainer while it fits.
struct RunOptimizer {
  std::shared_ptr<torch::nn::Module> module = {};  ///< whose parameters it trains
  std::unique_ptr<Optimizer> optimizer = {};       ///< what steps the parameters
  std::optional<LRScheduler> lr_scheduler = {};    ///< as it was configured
  std::unique_ptr<Scheduler> scheduler = {};       ///< null without lr_scheduler
};

class StepContext;
class ToggledOptimizer;

namespace detail {
struct TrainerState;
struct TrainedModule;
}  // namespace detail

/// How an optimizer is toggled.
struct ToggleOptions {
  bool sync_grad = true;  ///< false: backward passes add up this rank's gradients and send nothing
};

/// What Lightning's `self.optimizers()` gives: steps go through strategy and precision, and count as the
/// run's global_step. A view, for the duration of one training_step.
class LOCKSTEP_API ManualOptimizer {
 public:
  /// For StepContext::manual_optimizer().
  ManualOptimizer(detail::TrainerState& state, StepContext& step, RunOptimizer& optimizer)
      : state_(&state), step_(&step), optimizer_(&optimizer) {}

  /// The hook on_before_optimizer_step, then one update of the parameters. Returns 1 where there was an
  /// update, else 0: precision 16-mixed leaves it out where gradients have overflowed. Who reads that may
  /// wait for a device. Collective.
  /// @throws ConfigError for an optimizer that evaluates the loss itself
  Scalar step();

  /// The same for optimizers such as LBFGS: `closure` forgets the gradients, computes the loss, hands it to
  /// manual_backward() and returns it; it is called as often as the optimizer wants, on all ranks alike. For
  /// other optimizers it is called once. Returns the first loss, the mean over ranks. Collective.
  double step(const std::function<at::Tensor()>& closure);

  /// Forgets the gradients; or fills them with zeros in place. Not Collective.
  void zero_grad(bool set_to_none = true);

  /// Clips the gradients of this optimizer's parameters, unscaled before where a scaler is at work. Returns
  /// their norm before that, or 0 where each value is clipped. Lightning's clip_gradients(). Collective.
  Scalar clip_gradients(const GradientClip& clip);

  /// Until the end of the scope, parameters that only other optimizers train need no gradients: Lightning's
  /// toggle_optimizer, untoggle_optimizer and toggled_optimizer. Not Collective, but all ranks do alike.
  [[nodiscard]] ToggledOptimizer toggled(const ToggleOptions& options = {});

  /// What steps its learning rate; in manual optimisation nobody else does.
  /// @throws ConfigError where none is configured
  Scheduler& lr_scheduler() const;

  /// The optimizer within. Its own step() leaves out what strategy and precision do; call step() of this.
  Optimizer& optimizer() const { return *optimizer_->optimizer; }

 private:
  void prepare_step();

  detail::TrainerState* state_;
  StepContext* step_;
  RunOptimizer* optimizer_;
};

/// The scope that ManualOptimizer::toggled() opens.
class LOCKSTEP_API ToggledOptimizer {
 public:
  /// For ManualOptimizer::toggled().
  ToggledOptimizer(detail::TrainerState& state, const RunOptimizer& toggled, const ToggleOptions& options);
  ~ToggledOptimizer();
  ToggledOptimizer(const ToggledOptimizer&) = delete;
  ToggledOptimizer& operator=(const ToggledOptimizer&) = delete;

 private:
  std::vector<at::Tensor> frozen_;                ///< by this scope
  std::shared_ptr<detail::TrainedModule> local_;  ///< its gradients stay on this rank; or null
};

}  // namespace lockstep
