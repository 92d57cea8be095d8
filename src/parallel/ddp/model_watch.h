// Notices that a module is no longer the one that was set up.
#pragma once

#include <vector>

#include <torch/csrc/autograd/variable.h>

#include "parallel/module_lists.h"

namespace lockstep::detail {

/// Remembers parameters and buffers of a module and compares.
class ModelWatch {
 public:
  /// `allows_freezing`: trained parameters may be frozen for a while.
  ModelWatch(const torch::nn::Module& module, const ModuleStates& states, bool allows_freezing);

  /// Looks at every parameter at each call, and now and then at what the module holds. No allocation but
  /// then. @throws ConfigError naming what changed
  void check();

 private:
  // What backward relies on. Storage may come and go: optimizers move parameters to arenas.
  struct Known {
    NamedTensor named;
    std::vector<std::int64_t> sizes, strides;
    at::ScalarType dtype;
    at::Device device;
    bool is_trained;
    decltype(torch::autograd::impl::grad_accumulator(at::Tensor())) accumulator;  // null where frozen
  };

  void check(const Known& known) const;

  std::vector<Known> parameters_;
  ModuleLists lists_;
  bool allows_freezing_;
};

}  // namespace lockstep::detail
