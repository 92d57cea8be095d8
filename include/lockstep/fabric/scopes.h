// Scopes that a Fabric opens: their effect ends with them.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

namespace lockstep {

namespace detail {
struct FabricModule;
}

/// Backward passes within it add up gradients of a model locally and send nothing. Scopes nest.
class LOCKSTEP_API NoBackwardSync {
 public:
  /// For Fabric. Null: no effect.
  explicit NoBackwardSync(std::shared_ptr<detail::FabricModule> module);
  ~NoBackwardSync();
  NoBackwardSync(const NoBackwardSync&) = delete;
  NoBackwardSync& operator=(const NoBackwardSync&) = delete;

 private:
  std::shared_ptr<detail::FabricModule> module_;
};

/// Models constructed within it have float32 parameters, whatever the default element type is otherwise.
class LOCKSTEP_API InitScope {
 public:
  InitScope();
  ~InitScope();
  InitScope(const InitScope&) = delete;
  InitScope& operator=(const InitScope&) = delete;

 private:
  at::ScalarType previous_;
};

}  // namespace lockstep
