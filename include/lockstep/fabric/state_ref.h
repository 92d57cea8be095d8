// What Fabric::save() and Fabric::load() are given: objects and variables by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/fabric/fabric_steps.h>
#include <lockstep/fabric/module_pointer.h>
#include <lockstep/state/state_tree.h>

namespace lockstep {

class Scheduler;

/// Refers to something whose state is saved and loaded in place. Borrows all but models and optimizers.
class LOCKSTEP_API StateRef {
 public:
  /// What can be saved and loaded.
  using Target =
      std::variant<std::shared_ptr<torch::nn::Module>, std::shared_ptr<FabricOptimizer>, Scheduler*,
                   StateTree*, at::Tensor*, std::int64_t*, int*, double*, bool*, std::string*>;

  template <ModelHandle Model>
  StateRef(const Model& model) : target_(std::shared_ptr<torch::nn::Module>(detail::module_pointer(model))) {}
  StateRef(const std::shared_ptr<FabricOptimizer>& optimizer) : target_(optimizer) {}
  StateRef(Scheduler& scheduler) : target_(&scheduler) {}
  /// State of your own: load() replaces it by what was saved.
  StateRef(StateTree& tree) : target_(&tree) {}
  /// load() copies into the tensor, which must have the shape and dtype of the saved one.
  StateRef(at::Tensor& tensor) : target_(&tensor) {}
  StateRef(std::int64_t& value) : target_(&value) {}
  StateRef(int& value) : target_(&value) {}
  StateRef(double& value) : target_(&value) {}
  StateRef(bool& value) : target_(&value) {}
  StateRef(std::string& value) : target_(&value) {}

  /// What it refers to.
  const Target& target() const { return target_; }

 private:
  Target target_;
};

/// `{{"model", model}, {"optimizer", optimizer}, {"epoch", epoch}}`
using NamedStates = std::vector<std::pair<std::string, StateRef>>;

}  // namespace lockstep
