// Ddp: every rank holds the whole model; gradients are averaged in buckets while backward runs.
#pragma once

#include <memory>

#include <lockstep/parallel/ddp/ddp_engine.h>
#include <lockstep/strategy/strategy.h>

namespace lockstep {

class DdpStrategy final : public Strategy {
 public:
  explicit DdpStrategy(Ddp options) : options_(std::move(options)) {}

  std::string_view name() const override { return "ddp"; }
  void setup_environment(ClusterEnvironment& environment, const WorldShape& shape) override;
  const Communicator& communicator() const override { return communicator_; }
  std::unique_ptr<Optimizer> setup_fit(torch::nn::Module& module, const OptimizerFactory& factory) override;
  void setup_evaluation(torch::nn::Module& module) override;
  void backward(const at::Tensor& loss, GradSync sync) override;
  void optimizer_step(Optimizer& optimizer) override;
  void teardown() override;

 private:
  Ddp options_;
  Communicator communicator_;
  std::unique_ptr<DdpEngine> engine_;  // before the group that it communicates through, in destruction
};

}  // namespace lockstep
