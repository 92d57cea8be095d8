// The models that are trained together, and backward passes that average the gradients of some of them.
//
// A backward pass has to know whose gradients it will average before it begins: the strategy must be ready
// when the first gradient comes. With several models the graph of the loss tells, by its leaves.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include <lockstep/strategy/strategy.h>
#include <lockstep/torch.h>

namespace lockstep::detail {

// Notices gradients that a backward pass gave to models of which its graph knew nothing.
//
// The graph of a loss shows by its leaves which models it trains, unless a function hides a graph of its own
// and runs that backward from within. Such a model would be trained on gradients that were never averaged.

class GradientWatch {
 public:
  void add(const torch::nn::Module& module);
  /// @throws ConfigError when a gradient has changed since add()
  void check() const;

 private:
  struct Seen {
    at::Tensor parameter;
    const at::TensorImpl* gradient;
    std::int64_t version;
  };

  std::vector<Seen> seen_;
};

/// A model that was set up. Does not keep it alive.
struct TrainedModule {
  std::weak_ptr<torch::nn::Module> module;
  torch::nn::Module* address = nullptr;
  int local_scopes = 0;  ///< open ones, in which its gradients stay on this rank
};

/// @throws ConfigError unless backward can start from `loss`
void check_loss(const at::Tensor& loss, const BackwardOptions& options = {});

class TrainedModules {
 public:
  void add(const std::shared_ptr<torch::nn::Module>& module);
  void remove(const torch::nn::Module& module);
  void clear();
  /// Drops what belongs to models that nobody owns any more.
  void remove_expired();

  bool empty() const { return modules_.empty(); }
  /// Null when the model was not added.
  std::shared_ptr<TrainedModule> find(const torch::nn::Module& module) const;
  /// Whether a model that was added has this parameter.
  bool has(const at::Tensor& parameter) const { return owners_.contains(parameter.unsafeGetTensorImpl()); }

  /// strategy.backward() for `models`, or for all that the loss depends on where none are given; without
  /// those that have a local scope open. Collective.
  /// @throws ConfigError when the loss depends on no model
  void backward(Strategy& strategy, const at::Tensor& loss, const BackwardOptions& options = {},
                std::span<const torch::nn::Module* const> models = {});

 private:
  std::vector<const TrainedModule*> reached_by(const at::Tensor& loss) const;

  std::vector<std::shared_ptr<TrainedModule>> modules_;  // in the order of their setup
  std::unordered_map<const at::TensorImpl*, TrainedModule*> owners_;
  std::vector<torch::nn::Module*> averaged_;  // by the backward that runs; a member to be allocated once
};

}  // namespace lockstep::detail
