// What strategies have in common whose models a ShardedEngine drives: they differ in the plan.
#pragma once

#include <lockstep/parallel/sharded/sharded_engine.h>
#include <lockstep/state/state_dict_type.h>
#include <lockstep/strategy/strategy.h>

#include "strategy/deferred_scales.h"
#include "strategy/engine_table.h"

namespace lockstep {

class ShardedStrategy : public Strategy {
 public:
  const Communicator& communicator() const override { return communicator_; }
  void setup_module(const std::shared_ptr<torch::nn::Module>& module) override;
  void release_module(const torch::nn::Module& module) override;
  std::unique_ptr<Optimizer> setup_optimizer(torch::nn::Module& module,
                                             const OptimizerFactory& factory) override;
  void setup_evaluation(torch::nn::Module& module) override;
  void backward(const at::Tensor& loss, std::span<torch::nn::Module* const> synced,
                const BackwardOptions& options) override;
  double clip_gradients(Optimizer& optimizer, const GradientClip& clip) override;
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
  ShardingPlan plan() const { return plan(communicator_.size(), ranks_per_node_); }
  void drive(const std::shared_ptr<torch::nn::Module>& module, std::shared_ptr<ShardedEngine> engine);
  bool is_alike(const ShardedEngine& engine) const;

  StateDictType state_dict_type_;
  // Engines may outlive the strategy.
  std::shared_ptr<detail::DeferredScales> scales_ = std::make_shared<detail::DeferredScales>();
  Communicator communicator_;
  int ranks_per_node_ = 1;
  detail::EngineTable<ShardedEngine> sharded_;  // before the group that they communicate through
};

}  // namespace lockstep
