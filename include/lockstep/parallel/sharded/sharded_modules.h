// Which modules of this process are sharded. A module outlives the Trainer that sharded it, and is used,
// saved or trained again: it stays sharded until somebody wants it whole.
#pragma once

#include <memory>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/parallel/sharded/sharded_engine.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

/// Keeps `engine`, which has sharded `module`, as long as the module lives. Thread-safe; not Collective.
LOCKSTEP_API void keep_sharded(const std::shared_ptr<torch::nn::Module>& module,
                               std::shared_ptr<ShardedEngine> engine);

/// The engines of `module` and of the modules inside of it. Thread-safe; not Collective.
LOCKSTEP_API std::vector<std::shared_ptr<ShardedEngine>> sharded_engines(const torch::nn::Module& module);

/// The engine that has sharded `parameter`; null if none has. Thread-safe; not Collective.
LOCKSTEP_API std::shared_ptr<ShardedEngine> sharded_engine_of(const at::Tensor& parameter);

/// Gives `module`, and the modules inside of it, their parameters back, whole on every rank. Nothing happens
/// where they are not sharded. Collective over the ranks that hold the shards, blocking.
LOCKSTEP_API void restore_sharded(const torch::nn::Module& module);

/// Lets go of engines that have ended, and of those of modules that nobody owns any more. Thread-safe; does
/// not communicate.
LOCKSTEP_API void forget_dropped_sharded();

}  // namespace lockstep
