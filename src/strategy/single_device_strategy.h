// SingleDevice: one process, one device, no group.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include <lockstep/strategy/strategy.h>

namespace lockstep {

class SingleDeviceStrategy : public Strategy {
 public:
  std::string_view name() const override { return "single_device"; }
  void setup_environment(ClusterEnvironment& environment, const WorldShape& shape) override;
  const Communicator& communicator() const override { return communicator_; }
  void setup_module(const std::shared_ptr<torch::nn::Module>& module) override;
  void setup_evaluation(torch::nn::Module& module) override;
  void backward(const at::Tensor& loss, std::span<torch::nn::Module* const> synced,
                const BackwardOptions& options) override;
  Scalar clip_gradients_lazily(Optimizer& optimizer, const GradientClip& clip) override;
  void optimizer_step(Optimizer& optimizer) override;
  void teardown() override {}

 private:
  Communicator communicator_;
};

}  // namespace lockstep
