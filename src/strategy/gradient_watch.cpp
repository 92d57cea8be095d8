#include "strategy/gradient_watch.h"

#include <lockstep/base/error.h>

namespace lockstep::detail {

void GradientWatch::add(const torch::nn::Module& module) {
  for (const auto& parameter : module.parameters()) {
    const auto& gradient = parameter.grad();
    seen_.push_back({.parameter = parameter,
                     .gradient = gradient.defined() ? gradient.unsafeGetTensorImpl() : nullptr,
                     .version = gradient.defined() ? gradient._version() : 0});
  }
}

void GradientWatch::check() const {
  for (const auto& [parameter, before, version] : seen_) {
    const auto& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    if (gradient.unsafeGetTensorImpl() == before && gradient._version() == version) continue;
    throw ConfigError("strategy",
                      {.what = "backward() gave gradients to a model that the graph does not show",
                       .expected = "a graph that leads to all models that the loss trains",
                       .got = "a function that runs a backward of its own, such as a checkpoint",
                       .hint = "name the models: backward(loss, model, other)"});
  }
}

}  // namespace lockstep::detail
