// The search for the largest batch size that fits, and the votes of the ranks on whether a trial of it has
// run out of memory.
//
// A rank that runs out of memory leaves the loop at once, and the others would wait for it in their next
// collective. So the ranks vote before each collective of the loops that a trial reaches
// (RunSetup::before_exchange), after each backward pass, which exchanges nothing in a trial, and after the
// trial. A rank that fails votes while it leaves the loop; the others receive that vote with their next one,
// and leave, too.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>

#include <lockstep/base/export.h>
#include <lockstep/strategy/strategy.h>
#include <lockstep/train/tuner_options.h>

namespace lockstep::detail {

/// The outcome of a trial of a batch size.
enum class TrialOutcome {
  kOutOfMemory,
  kFits,
  kHoldsAll  ///< it fits, and there are no more samples than that
};

/// The size that `options` ask for, found by calling `run_trial` with sizes up to max_val.
/// @throws ConfigError when not even one sample fits; what `run_trial` throws
LOCKSTEP_API std::int64_t search_batch_size(const ScaleBatchSizeOptions& options,
                                            const std::function<TrialOutcome(std::int64_t)>& run_trial);

/// Thrown on a rank that has memory enough when another has not.
struct OutOfMemoryElsewhere final : std::exception {
  const char* what() const noexcept override { return "another rank is out of memory"; }
};

/// Votes whether this rank has run out of memory. Collective, blocking.
/// @throws OutOfMemoryElsewhere when another one has
void vote(const Communicator& communicator, bool out_of_memory);

/// Wraps a strategy, without its exchange of gradients: each rank uses its own, and votes.
class TrialStrategy final : public Strategy {
 public:
  explicit TrialStrategy(std::shared_ptr<Strategy> strategy) : strategy_(std::move(strategy)) {
    set_root_device(strategy_->root_device());
  }

  std::string_view name() const override { return strategy_->name(); }
  void setup_environment(ClusterEnvironment& environment, const WorldShape& shape) override {
    strategy_->setup_environment(environment, shape);
  }
  const Communicator& communicator() const override { return strategy_->communicator(); }
  bool defers_init() const override { return strategy_->defers_init(); }
  void setup_module(const std::shared_ptr<torch::nn::Module>& module) override {
    strategy_->setup_module(module);
  }
  void release_module(const torch::nn::Module& module) override { strategy_->release_module(module); }
  std::unique_ptr<Optimizer> setup_optimizer(torch::nn::Module& module,
                                             const OptimizerFactory& factory) override {
    return strategy_->setup_optimizer(module, factory);
  }
  void setup_evaluation(torch::nn::Module& module) override { strategy_->setup_evaluation(module); }
  bool broadcasts_buffers() const override { return strategy_->broadcasts_buffers(); }
  void backward(const at::Tensor& loss, std::span<torch::nn::Module* const> synced,
                const BackwardOptions& options) override;
  double clip_gradients(Optimizer& optimizer, const GradientClip& clip) override {
    return strategy_->clip_gradients(optimizer, clip);
  }
  Scalar clip_gradients_lazily(Optimizer& optimizer, const GradientClip& clip) override {
    return strategy_->clip_gradients_lazily(optimizer, clip);
  }
  bool unscale_in_step(Optimizer& optimizer, double factor) override {
    return strategy_->unscale_in_step(optimizer, factor);
  }
  void optimizer_step(Optimizer& optimizer) override { strategy_->optimizer_step(optimizer); }
  double optimizer_step_with(Optimizer& optimizer, const Optimizer::Closure& closure) override {
    return strategy_->optimizer_step_with(optimizer, closure);
  }
  void skip_optimizer_step(Optimizer& optimizer) override { strategy_->skip_optimizer_step(optimizer); }
  bool shards_gradients() const override { return strategy_->shards_gradients(); }
  bool averages_every_backward() const override { return strategy_->averages_every_backward(); }
  std::vector<NamedParameter> accumulating_parameters(torch::nn::Module& module) override {
    return strategy_->accumulating_parameters(module);
  }
  bool shares_forward(const torch::nn::Module& module) const override {
    return strategy_->shares_forward(module);
  }
  std::shared_ptr<void> hold_whole(torch::nn::Module& module) override {
    return strategy_->hold_whole(module);
  }
  std::map<std::string, at::Tensor> module_state(torch::nn::Module& module) override {
    return strategy_->module_state(module);
  }
  StateTree saved_state(torch::nn::Module& module) override { return strategy_->saved_state(module); }
  StateTree saved_shards(torch::nn::Module& module) override { return strategy_->saved_shards(module); }
  StateTree wanted_state(torch::nn::Module& module) override { return strategy_->wanted_state(module); }
  IncompatibleKeys load_module(torch::nn::Module& module, const StateTree& state, bool strict) override {
    return strategy_->load_module(module, state, strict);
  }
  StateTree optimizer_state(Optimizer& optimizer) override { return strategy_->optimizer_state(optimizer); }
  StateTree wanted_optimizer_state(Optimizer& optimizer) override {
    return strategy_->wanted_optimizer_state(optimizer);
  }
  void set_precision(Precision& precision) override { strategy_->set_precision(precision); }
  double grad_norm(Optimizer& optimizer, double norm_type) override {
    return strategy_->grad_norm(optimizer, norm_type);
  }
  void load_optimizer(Optimizer& optimizer, const StateTree& state) override {
    strategy_->load_optimizer(optimizer, state);
  }
  std::vector<at::Tensor> trained_parameters(const Optimizer& optimizer) override {
    return strategy_->trained_parameters(optimizer);
  }
  std::uint64_t bytes_sent() const override { return strategy_->bytes_sent(); }
  std::map<std::string, int> mesh() const override { return strategy_->mesh(); }
  StateTree state() const override { return strategy_->state(); }
  void load_state(const StateTree& state) override { strategy_->load_state(state); }
  void teardown() override { strategy_->teardown(); }

 private:
  std::shared_ptr<Strategy> strategy_;
};

/// Whether a smaller batch may help: LibTorch's allocators on CPU and CUDA, operator new, and cuDNN where
/// its buffers do not fit.
LOCKSTEP_API bool is_out_of_memory(const std::exception& error);

}  // namespace lockstep::detail
