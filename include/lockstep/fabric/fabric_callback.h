// What is told of the steps of an own loop.
#pragma once

#include <lockstep/base/export.h>

namespace lockstep {

class FabricOptimizer;

/// Base of the callbacks in FabricOptions::callbacks. Hooks of your own are functions of an interface of your
/// own, which callbacks derive from as well and which Fabric::call() calls.
class LOCKSTEP_API FabricCallback {
 public:
  virtual ~FabricCallback();

  /// After every FabricOptimizer::step().
  virtual void on_after_optimizer_step(FabricOptimizer& /*optimizer*/) {}
};

}  // namespace lockstep
