// The part of Fabric that deals with gradients.
#include <lockstep/base/error.h>
#include <lockstep/fabric/fabric.h>

#include "fabric/fabric_state.h"
#include "strategy/scaled_step.h"

namespace lockstep {

void Fabric::run_backward(const at::Tensor& loss, const BackwardOptions& options,
                          std::initializer_list<const torch::nn::Module*> models) {
  auto& state = *state_;
  state.require_launched("backward()");
  state.modules.remove_expired();
  detail::check_loss(loss, options);
  state.modules.backward(*state.strategy, detail::scaled_loss(*state.precision, loss), options,
                         {models.begin(), models.size()});
}

std::shared_ptr<detail::TrainedModule> Fabric::known_module(const torch::nn::Module& module) const {
  auto known = state_->modules.find(module);
  if (known) return known;
  throw ConfigError("fabric", {.what = "a model that this Fabric has not set up",
                               .expected = "one that setup() was given",
                               .got = module.name()});
}

std::optional<double> Fabric::clip_gradients_of(FabricOptimizer& optimizer, const ClipGradients& clip) {
  if (clip.clip_val.has_value() == clip.max_norm.has_value()) {
    throw ConfigError("fabric", {.what = "clip_gradients() takes clip_val or max_norm",
                                 .expected = "exactly one of them",
                                 .got = clip.clip_val ? "both" : "neither"});
  }
  const double norm =
      detail::clip_gradients(strategy(), precision(), optimizer,
                             {.value = clip.clip_val ? *clip.clip_val : *clip.max_norm,
                              .algorithm = clip.clip_val ? ClipAlgorithm::kValue : ClipAlgorithm::kNorm,
                              .norm_type = clip.norm_type,
                              .error_if_nonfinite = clip.error_if_nonfinite});
  return clip.max_norm ? std::optional(norm) : std::nullopt;
}

}  // namespace lockstep
