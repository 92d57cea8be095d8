// The part of Fabric that deals with gradients.
#include <algorithm>

#include <lockstep/base/error.h>
#include <lockstep/fabric/fabric.h>

#include "fabric/fabric_state.h"
#include "fabric/reached_modules.h"
#include "strategy/scaled_step.h"

namespace lockstep {

using detail::FabricModule;
using detail::FabricState;

namespace {

void check_loss(const at::Tensor& loss, const BackwardOptions& options) {
  const bool has_start = loss.defined() && (loss.numel() == 1 || options.gradient.defined());
  const bool usable = has_start && loss.requires_grad();
  if (usable) return;
  throw ConfigError(
      "fabric", {.what = "backward() cannot start from this loss",
                 .expected = "a tensor of one element, or with options.gradient, that requires a gradient",
                 .got = !loss.defined()     ? std::string("an undefined tensor")
                        : loss.numel() != 1 ? std::to_string(loss.numel()) + " elements"
                                            : "a tensor that no parameter had a part in"});
}

[[noreturn]] void refuse_loss_of_no_model(std::size_t models) {
  throw ConfigError("fabric", {.what = "backward() found no model to train",
                               .expected = "a loss that depends on a model that setup() was given",
                               .got = std::to_string(models) + " models set up, and a loss of none of them",
                               .hint = "name the model: fabric.backward(loss, model)"});
}

void sync(FabricState& state, const FabricModule& known) {
  if (known.open_scopes == 0) state.synced.push_back(known.address);
}

// Of several models those that the loss depends on; the others' gradients are watched.
void sync_reached(FabricState& state, const at::Tensor& loss, detail::GradientWatch& others) {
  const auto reached = detail::reached_modules(loss, state);
  if (reached.empty()) refuse_loss_of_no_model(state.modules.size());
  for (const auto& known : state.modules) {
    if (std::ranges::count(reached, known.get()) > 0) {
      sync(state, *known);
    } else if (known->open_scopes == 0) {
      others.add(*known->address);
    }
  }
}

}  // namespace

void Fabric::run_backward(const at::Tensor& loss, const BackwardOptions& options,
                          std::initializer_list<const torch::nn::Module*> models) {
  auto& state = *state_;
  state.require_launched("backward()");
  state.forget_dropped_modules();
  check_loss(loss, options);
  state.synced.clear();
  detail::GradientWatch others;
  if (models.size() > 0) {
    for (const auto* model : models) sync(state, *known_module(*model));
  } else if (state.modules.size() == 1) {
    sync(state, *state.modules.front());
  } else {
    sync_reached(state, loss, others);
  }
  state.strategy->backward(detail::scaled_loss(*state.precision, loss), state.synced, options);
  others.check();
}

std::shared_ptr<FabricModule> Fabric::known_module(const torch::nn::Module& module) const {
  auto known = state_->find(module);
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
  const bool usable = detail::unscale_gradients(strategy(), precision(), optimizer);
  const double norm = strategy().clip_gradients(
      optimizer, {.value = clip.clip_val ? *clip.clip_val : *clip.max_norm,
                  .algorithm = clip.clip_val ? ClipAlgorithm::kValue : ClipAlgorithm::kNorm,
                  .norm_type = clip.norm_type,
                  .error_if_nonfinite = clip.error_if_nonfinite && usable});
  return clip.max_norm ? std::optional(norm) : std::nullopt;
}

}  // namespace lockstep
