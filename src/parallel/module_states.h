// The tensors of a module, by name, and their comparison between ranks.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/comm/communicator.h>

namespace torch::nn {
class Module;
}

namespace lockstep::detail {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// A module's tensors in the order of registration; one that has several names comes once.
struct ModuleStates {
  explicit ModuleStates(const torch::nn::Module& module);
  std::vector<NamedTensor> parameters;
  std::vector<NamedTensor> buffers;
};

/// @throws ConfigError naming a tensor that one rank's values cannot be copied to: sparse, or with elements
/// that share memory
void require_writable(const ModuleStates& states);

/// Collective, blocking.
/// @throws CollectiveMismatch naming the first tensor whose name, shape, dtype, strides, kind of device or
/// requires_grad differs
void compare_states(const ModuleStates& states, const Communicator& comm);

/// Gives memory to what DeferredInit has put off.
void materialize_states(const ModuleStates& states);

/// Everything becomes rank 0's. Collective, blocking.
void broadcast_states(const ModuleStates& states, const Communicator& comm);

}  // namespace lockstep::detail
