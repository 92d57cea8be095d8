#include <lockstep/strategy/strategy.h>

#include <lockstep/checkpoint/weights.h>
#include <lockstep/cluster/environment.h>
#include <lockstep/optim/grad_norm.h>
#include <lockstep/torch.h>

namespace lockstep {

Strategy::~Strategy() = default;

void set_world_ranks(ClusterEnvironment& environment, const WorldShape& shape) {
  environment.set_world_size(shape.devices * shape.num_nodes);
  environment.set_global_rank(environment.node_rank() * shape.devices + environment.local_rank());
}

void Strategy::clip_gradients(Optimizer& optimizer, const GradientClip& clip) {
  std::vector<at::Tensor> parameters;
  for (const auto& parameter : optimizer.parameters()) parameters.push_back(parameter.tensor);
  if (clip.algorithm == ClipAlgorithm::kNorm) {
    clip_grad_norm(parameters, clip.value);
  } else {
    clip_grad_value(parameters, clip.value);
  }
}

NamedTensors Strategy::module_state(torch::nn::Module& module) { return named_tensors(module); }

}  // namespace lockstep
