#include "strategy/single_device.h"

#include <lockstep/torch.h>

#include "strategy/named_parameters.h"

namespace lockstep {

void SingleDeviceStrategy::setup_environment(ClusterEnvironment&, const WorldShape&) {}

std::unique_ptr<Optimizer> SingleDeviceStrategy::setup_fit(torch::nn::Module& module,
                                                           const OptimizerFactory& factory) {
  return factory.create(named_parameters(module));
}

void SingleDeviceStrategy::setup_evaluation(torch::nn::Module&) {}

void SingleDeviceStrategy::backward(const at::Tensor& loss, GradSync) { loss.backward(); }

void SingleDeviceStrategy::optimizer_step(Optimizer& optimizer) { optimizer.step(); }

}  // namespace lockstep
