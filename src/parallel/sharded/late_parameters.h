// Parameters of a module that is built within DeferredInit: they get their memory when their shard is cut.
#pragma once

#include <unordered_set>

#include <lockstep/comm/communicator.h>

#include "parallel/module_states.h"

namespace lockstep::detail {

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
