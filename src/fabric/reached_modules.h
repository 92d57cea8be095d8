// Which models a loss depends on.
//
// A backward pass has to know whose gradients it will average before it begins: the strategy must be ready
// when the first gradient comes. The graph tells, by its leaves, unless a function hides a graph of its own
// and runs that backward from within; such a model would be trained on gradients that were never averaged.
// So the gradients of models that were not found are watched: they must not change.
#pragma once

#include <memory>
#include <vector>

#include "fabric/fabric_state.h"

namespace lockstep::detail {

/// The models with a parameter among the leaves of `loss`'s graph, in the order of their setup.
std::vector<FabricModule*> reached_modules(const at::Tensor& loss, const FabricState& state);

/// Notices when gradients of models change.
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

}  // namespace lockstep::detail
