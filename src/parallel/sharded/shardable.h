// Which parameters can be sharded at all, and those that get their memory when their shard is cut.
#pragma once

#include <unordered_set>

#include <lockstep/comm/communicator.h>

#include "parallel/module_states.h"

namespace lockstep::detail {

/// Whether parameters of this type are sharded; all ranks hold those of others.
bool is_sharded_type(at::ScalarType dtype);

/// That of the first parameter of a type that is sharded; the CPU where there is none.
at::Device device_of(const ModuleStates& states);

/// @throws ConfigError naming a parameter that cannot be: trained integers or complex numbers, sparse, on
/// another device than the first one, sharded already, or in another one's memory
void check_shardable(const ModuleStates& states);

class LateParameters {
 public:
  /// Finds the parameters that can wait: those that are deferred here, or, if ranks are to have the same
  /// values, on any rank. All else in `states` gets its memory and, then, rank 0's values. Collective, if so.
  LateParameters(const ModuleStates& states, const Communicator& comm, bool are_synced);

  /// Gives `parameter` its memory and its values, if it is one that waits; rank 0's, if ranks are to have the
  /// same. All ranks call in the same order. Collective, if so; blocking.
  void fetch(const at::Tensor& parameter) const;

 private:
  void find(const ModuleStates& states);

  const Communicator& comm_;
  bool are_synced_;
  std::unordered_set<const at::TensorImpl*> late_;
};

}  // namespace lockstep::detail
