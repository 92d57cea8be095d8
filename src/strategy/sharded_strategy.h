// Fsdp: every rank keeps a shard of parameters, gradients and optimizer state.
#pragma once

#include <lockstep/parallel/sharded/sharded_engine.h>
#include <lockstep/strategy/strategy.h>

#include "strategy/engine_table.h"

namespace lockstep {

class FsdpStrategy final : public Strategy {
 public:
  explicit FsdpStrategy(Fsdp options) : options_(std::move(options)) {}

  std::string_view name() const override { return "fsdp"; }
  void setup_environment(ClusterEnvironment& environment, const WorldShape& shape) override;
  const Communicator& communicator() const override { return communicator_; }
  void set_precision(const Precision& precision) override;
  void setup_module(const std::shared_ptr<torch::nn::Module>& module) override;
  void release_module(const torch::nn::Module& module) override;
  std::unique_ptr<Optimizer> setup_optimizer(torch::nn::Module& module,
                                             const OptimizerFactory& factory) override;
  void setup_evaluation(torch::nn::Module& module) override;
  void backward(const at::Tensor& loss, std::span<torch::nn::Module* const> synced,
                const BackwardOptions& options) override;
  double clip_gradients(Optimizer& optimizer, const GradientClip& clip) override;
  void optimizer_step(Optimizer& optimizer) override;
  void skip_optimizer_step(Optimizer& optimizer) override;
  bool shards_gradients() const override { return true; }
  std::map<std::string, at::Tensor> module_state(torch::nn::Module& module) override;
  StateTree saved_state(torch::nn::Module& module) override;
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

 private:
  bool is_alike(const ShardedEngine& engine) const;

  Fsdp options_;
  Communicator communicator_;
  int ranks_per_node_ = 1;
  detail::EngineTable<ShardedEngine> sharded_;  // before the group that they communicate through
};

}  // namespace lockstep
