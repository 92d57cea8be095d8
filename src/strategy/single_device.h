// SingleDevice: one process, one device, no group.
#pragma once

#include <lockstep/strategy/strategy.h>

namespace lockstep {

class SingleDeviceStrategy final : public Strategy {
 public:
  std::string_view name() const override { return "single_device"; }
  void setup_environment(ClusterEnvironment& environment, const WorldShape& shape) override;
  const Communicator& communicator() const override { return communicator_; }
  std::unique_ptr<Optimizer> setup_fit(torch::nn::Module& module, const OptimizerFactory& factory) override;
  void setup_evaluation(torch::nn::Module& module) override;
  void backward(const at::Tensor& loss, GradSync sync) override;
  void optimizer_step(Optimizer& optimizer) override;
  void teardown() override {}

 private:
  Communicator communicator_;
};

}  // namespace lockstep
