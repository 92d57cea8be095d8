#include "strategy/trained_modules.h"

#include <algorithm>
#include <unordered_set>

#include <lockstep/base/error.h>

#include "parallel/backward_checks.h"

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

namespace {

[[noreturn]] void refuse_stranger(const torch::nn::Module& module) {
  throw ConfigError("strategy", {.what = "backward() was given a model that was not set up",
                                 .expected = "one that setup() was given, or an optimizer's own",
                                 .got = module.name()});
}

[[noreturn]] void refuse_loss_of_no_model(std::size_t models) {
  throw ConfigError("strategy", {.what = "backward() found no model to train",
                                 .expected = "a loss that depends on a model that was set up",
                                 .got = std::to_string(models) + " models set up, and a loss of none of them",
                                 .hint = "name the model: backward(loss, model)"});
}

}  // namespace

void check_loss(const at::Tensor& loss, const BackwardOptions& options) {
  const bool has_start = loss.defined() && (loss.numel() == 1 || options.gradient.defined());
  const bool usable = has_start && loss.requires_grad();
  if (usable) return;
  throw ConfigError(
      "strategy", {.what = "backward() cannot start from this loss",
                   .expected = "a tensor of one element, or with options.gradient, that requires a gradient",
                   .got = !loss.defined()     ? std::string("an undefined tensor")
                          : loss.numel() != 1 ? std::to_string(loss.numel()) + " elements"
                                              : "a tensor that no parameter had a part in"});
}

void TrainedModules::add(const std::shared_ptr<torch::nn::Module>& module) {
  modules_.push_back(
      std::make_shared<TrainedModule>(TrainedModule{.module = module, .address = module.get()}));
  for (const auto& parameter : module->parameters())
    owners_.emplace(parameter.unsafeGetTensorImpl(), modules_.back().get());
}

void TrainedModules::remove(const torch::nn::Module& module) {
  std::erase_if(owners_, [&](const auto& entry) { return entry.second->address == &module; });
  std::erase_if(modules_, [&](const auto& known) { return known->address == &module; });
}

void TrainedModules::clear() {
  owners_.clear();
  modules_.clear();
}

void TrainedModules::remove_expired() {
  std::erase_if(owners_, [](const auto& entry) { return entry.second->module.expired(); });
  std::erase_if(modules_, [](const auto& known) { return known->module.expired(); });
}

std::shared_ptr<TrainedModule> TrainedModules::find(const torch::nn::Module& module) const {
  const auto found = std::ranges::find_if(
      modules_, [&](const auto& known) { return known->address == &module && !known->module.expired(); });
  return found == modules_.end() ? nullptr : *found;
}

std::vector<const TrainedModule*> TrainedModules::reached_by(const at::Tensor& loss) const {
  std::unordered_set<const TrainedModule*> found;
  for_each_leaf(loss, [&](const at::Tensor& leaf) {
    const auto owner = owners_.find(leaf.unsafeGetTensorImpl());
    if (owner != owners_.end()) found.insert(owner->second);
    return found.size() < modules_.size();
  });
  std::vector<const TrainedModule*> reached;
  for (const auto& known : modules_) {
    if (found.contains(known.get())) reached.push_back(known.get());
  }
  return reached;
}

void TrainedModules::backward(Strategy& strategy, const at::Tensor& loss, const BackwardOptions& options,
                              std::span<const torch::nn::Module* const> models) {
  averaged_.clear();
  const auto average = [&](const TrainedModule& known) {
    if (known.local_scopes == 0 || strategy.averages_every_backward()) averaged_.push_back(known.address);
  };
  GradientWatch others;
  if (!models.empty()) {
    for (const auto* model : models) {
      const auto known = find(*model);
      if (!known) refuse_stranger(*model);
      average(*known);
    }
  } else if (modules_.size() == 1) {
    average(*modules_.front());
  } else {
    const auto reached = reached_by(loss);
    if (reached.empty()) refuse_loss_of_no_model(modules_.size());
    for (const auto& known : modules_) {
      if (std::ranges::count(reached, known.get()) > 0) {
        average(*known);
      } else if (known->local_scopes == 0) {
        others.add(*known->address);
      }
    }
  }
  strategy.backward(loss, averaged_, options);
  others.check();
}

}  // namespace lockstep::detail
