// Scopes that a Fabric opens: their effect ends with them.
#pragma once

#include <memory>
#include <optional>

#include <lockstep/base/export.h>
#include <lockstep/parallel/deferred_init.h>
#include <lockstep/precision/forward_scope.h>

namespace lockstep {

namespace detail {
struct TrainedModule;
}

/// Backward passes within it add up gradients of a model locally and send nothing. Scopes nest.
class LOCKSTEP_API NoBackwardSync {
 public:
  /// For Fabric. Null: no effect.
  explicit NoBackwardSync(std::shared_ptr<detail::TrainedModule> module);
  ~NoBackwardSync();
  NoBackwardSync(const NoBackwardSync&) = delete;
  NoBackwardSync& operator=(const NoBackwardSync&) = delete;

 private:
  std::shared_ptr<detail::TrainedModule> module_;
};

/// Models constructed within it have parameters of the precision's element type, float32 but for those of
/// "true" precisions, whatever the default element type is otherwise. Under a strategy that shards parameters
/// they have no memory yet: see DeferredInit.
class LOCKSTEP_API InitScope {
 public:
  /// For Fabric.
  InitScope(at::ScalarType dtype, bool defers) : scope_(dtype) {
    if (defers) deferral_.emplace();
  }

 private:
  DefaultDtypeScope scope_;
  std::optional<DeferredInit> deferral_;
};

}  // namespace lockstep
