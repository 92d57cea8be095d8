// What strategies have in common whose models a ShardedEngine drives, and Fsdp, which adds nothing but its
// plan.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include <lockstep/optim/optimizer.h>
#include <lockstep/parallel/sharded/sharded_engine.h>
#include <lockstep/state/module_state.h>
#include <lockstep/strategy/strategy.h>

#include "strategy/engine_table.h"

namespace lockstep::detail {

class DeferredScales final : public PendingScales {
 public:
  /// Follows an optimizer for as long as the result lives, which the optimizer's zero_grad() is to set to 1.
  std::shared_ptr<double> follow(const Optimizer& optimizer);

  /// Whether it follows one that lives at that address.
  bool follows(const Optimizer* optimizer) const;

  /// What the gradients are to be multiplied by wherever they are read, until zero_grad().
  double factor(const Optimizer& optimizer) const;

  /// Multiplies the optimizer's gradients by `factor`: in its steps, if that has the same bits.
  void scale(const Optimizer& optimizer, double factor);

  /// The same, if it is sure to be deferred and to round nothing. False: nothing was done.
  bool defer_exact(const Optimizer& optimizer, double factor);

  /// What is deferred becomes a power of two at most, which rounds nothing, so that gradients have the bits
  /// that they would have if each factor were multiplied in its turn.
  void settle(const Optimizer& optimizer);

  /// Multiplies the gradients themselves, for whoever adds to them or takes them elsewhere.
  void apply(const Optimizer& optimizer);
  void apply_all() override;

  double factor_of(const at::Tensor& piece) const override;

 private:
  std::shared_ptr<double> find(const Optimizer& optimizer) const;

  std::unordered_map<const Optimizer*, std::weak_ptr<double>> factors_;  // expired with the optimizer
};

}  // namespace lockstep::detail

namespace lockstep {

class ShardedStrategy : public Strategy {
 public:
  const Communicator& communicator() const override { return communicator_; }
  void setup_module(const std::shared_ptr<torch::nn::Module>& module) override;
  void release_module(const torch::nn::Module& module) override;
  std::unique_ptr<Optimizer> setup_optimizer(torch::nn::Module& module,
                                             const OptimizerFactory& factory) override;
  void setup_evaluation(torch::nn::Module& module) override;
  bool broadcasts_buffers() const override { return plan().broadcast_buffers; }
  void backward(const at::Tensor& loss, std::span<torch::nn::Module* const> synced,
                const BackwardOptions& options) override;
  double clip_gradients(Optimizer& optimizer, const GradientClip& clip) override;
  Scalar clip_gradients_lazily(Optimizer& optimizer, const GradientClip& clip) override;
  void optimizer_step(Optimizer& optimizer) override;
  double optimizer_step_with(Optimizer& optimizer, const Optimizer::Closure& closure) override;
  void skip_optimizer_step(Optimizer& optimizer) override;
  void check_replicas(torch::nn::Module& module) override;
  bool shards_gradients() const override { return true; }
  bool defers_init() const override { return true; }
  std::vector<NamedParameter> accumulating_parameters(torch::nn::Module& module) override;
  bool shares_forward(const torch::nn::Module& module) const override;
  std::shared_ptr<void> hold_whole(torch::nn::Module& module) override;
  std::map<std::string, at::Tensor> module_state(torch::nn::Module& module) override;
  StateTree saved_state(torch::nn::Module& module) override;
  StateTree saved_shards(torch::nn::Module& module) override;
  StateTree wanted_state(torch::nn::Module& module) override;
  IncompatibleKeys load_module(torch::nn::Module& module, const StateTree& state, bool strict) override;
  StateTree optimizer_state(Optimizer& optimizer) override;
  StateTree wanted_optimizer_state(Optimizer& optimizer) override;
  double grad_norm(Optimizer& optimizer, double norm_type) override;
  void load_optimizer(Optimizer& optimizer, const StateTree& state) override;
  std::vector<at::Tensor> trained_parameters(const Optimizer& optimizer) override;
  std::uint64_t bytes_sent() const override;
  std::map<std::string, int> mesh() const override;
  void teardown() override;

  /// Modules that nobody owns any more take the groups of their engines along.
  ~ShardedStrategy() override;

 protected:
  /// `type`: how checkpoints hold models.
  explicit ShardedStrategy(StateDictType type) : state_dict_type_(type) {}

  /// What is to be done with a model. @throws ConfigError where options do not fit the number of ranks
  virtual ShardingPlan plan(int world_size, int ranks_per_node) const = 0;

  /// The group that the ranks have formed.
  void set_ranks(Communicator communicator, int ranks_per_node);

  /// Before a step changes anything. @throws where it must not be taken, on all ranks alike
  virtual void check_step(const Optimizer& optimizer);

  detail::DeferredScales& scales() { return *scales_; }

 private:
  using Row = detail::DrivenModule<ShardedEngine>;

  ShardingPlan plan() const;
  std::vector<Optimizer*> living_optimizers(const Row& row) const;
  std::shared_ptr<ShardedEngine> engine_of(const Optimizer& optimizer);
  void follow(Optimizer& optimizer, const std::shared_ptr<ShardedEngine>& engine);
  void drive(const std::shared_ptr<torch::nn::Module>& module, std::shared_ptr<ShardedEngine> engine);
  bool is_alike(const ShardedEngine& engine) const;

  StateDictType state_dict_type_;
  // Engines may outlive the strategy.
  std::shared_ptr<detail::DeferredScales> scales_ = std::make_shared<detail::DeferredScales>();
  Communicator communicator_;
  int ranks_per_node_ = 1;
  detail::EngineTable<ShardedEngine> sharded_;  // before the group that they communicate through
  // Of optimizers from before the last teardown, whose state may still be saved.
  std::unordered_map<const Optimizer*, std::weak_ptr<ShardedEngine>> finished_;
};

class FsdpStrategy final : public ShardedStrategy {
 public:
  explicit FsdpStrategy(Fsdp options)
      : ShardedStrategy(options.state_dict_type), options_(std::move(options)) {}

  std::string_view name() const override { return "fsdp"; }
  void setup_environment(ClusterEnvironment& environment, const WorldShape& shape) override;
  void set_precision(Precision& precision) override;

 private:
  ShardingPlan plan(int world_size, int ranks_per_node) const override {
    return plan_of(options_, world_size, ranks_per_node);
  }

  Fsdp options_;
};

}  // namespace lockstep
