// Ddp: every rank holds the whole model, and gradients are averaged in buckets while backward runs.
#pragma once

#include <memory>
#include <vector>

#include <lockstep/parallel/ddp/ddp_engine.h>
#include <lockstep/strategy/strategy.h>

#include "strategy/engine_table.h"

namespace lockstep {

class DdpStrategy final : public Strategy {
 public:
  explicit DdpStrategy(Ddp options) : options_(std::move(options)) {}

  std::string_view name() const override { return "ddp"; }
  void setup_environment(ClusterEnvironment& environment, const WorldShape& shape) override;
  const Communicator& communicator() const override { return communicator_; }
  void setup_module(const std::shared_ptr<torch::nn::Module>& module) override;
  void release_module(const torch::nn::Module& module) override;
  std::unique_ptr<Optimizer> setup_optimizer(torch::nn::Module& module,
                                             const OptimizerFactory& factory) override;
  void setup_evaluation(torch::nn::Module& module) override;
  void backward(const at::Tensor& loss, std::span<torch::nn::Module* const> synced,
                const BackwardOptions& options) override;
  bool averages_every_backward() const override { return options_.reduce_every_micro_batch; }
  Scalar clip_gradients_lazily(Optimizer& optimizer, const GradientClip& clip) override;
  void optimizer_step(Optimizer& optimizer) override;
  double optimizer_step_with(Optimizer& optimizer, const Optimizer::Closure& closure) override;
  void skip_optimizer_step(Optimizer& optimizer) override;
  void check_replicas(torch::nn::Module& module) override;
  StateTree state() const override;
  void load_state(const StateTree& state) override;
  void teardown() override;

 private:
  using Replicas = detail::EngineTable<DdpEngine>;

  Ddp options_;
  Communicator communicator_;
  Replicas replicas_;  // before the group that they communicate through, in destruction
};

}  // namespace lockstep
