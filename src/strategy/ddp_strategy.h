// Ddp: every rank holds the whole model, and gradients are averaged in buckets while backward runs.
#pragma once

#include <memory>
#include <vector>

#include <lockstep/parallel/ddp/ddp_engine.h>
#include <lockstep/strategy/strategy.h>

#include "strategy/replicated_strategy.h"

namespace lockstep {

class DdpStrategy final : public ReplicatedStrategy<DdpEngine> {
 public:
  explicit DdpStrategy(Ddp options) : options_(std::move(options)) {}

  std::string_view name() const override { return "ddp"; }
  void setup_environment(ClusterEnvironment& environment, const WorldShape& shape) override;
  void setup_module(const std::shared_ptr<torch::nn::Module>& module) override;
  void setup_evaluation(torch::nn::Module& module) override;
  bool broadcasts_buffers() const override { return options_.broadcast_buffers; }
  void backward(const at::Tensor& loss, std::span<torch::nn::Module* const> synced,
                const BackwardOptions& options) override;
  bool averages_every_backward() const override { return options_.reduce_every_micro_batch; }
  StateTree state() const override;
  void load_state(const StateTree& state) override;

 private:
  Ddp options_;
};

}  // namespace lockstep
