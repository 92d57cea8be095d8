// What a module that is sharded, as a whole or in parts, holds: for checkpoints.
#pragma once

#include <map>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/parallel/sharded/sharded_engine.h>
#include <lockstep/state/module_state.h>
#include <lockstep/state/state_tree.h>

namespace lockstep {

/// All parameters and buffers of `module`, whole, under their PyTorch names, on rank 0; nothing on the
/// others. `engines` have sharded it, or parts of it. Sharded ones are copies, of type `type`.
/// Collective, blocking.
LOCKSTEP_API std::map<std::string, at::Tensor> full_state(const torch::nn::Module& module,
                                                          std::span<ShardedEngine* const> engines,
                                                          WholeValues type = WholeValues::kOwnType);

/// The same as TensorShards that share the shards' memory; what is not sharded is whole. Not Collective.
LOCKSTEP_API StateTree sharded_state(const torch::nn::Module& module, std::span<ShardedEngine* const> engines,
                                     ShardCopies copies = ShardCopies::kOne);

/// Copies `state`, whole tensors or the runs of sharded_state(), into the shards and into what is not
/// sharded. Unless it is `strict`, names that only one of them has are no error; they are returned. Not
/// Collective.
/// @throws CheckpointError naming every tensor that is missing, unknown or of another shape or element type;
/// nothing is copied then
LOCKSTEP_API IncompatibleKeys load_sharded_state(const torch::nn::Module& module,
                                                 std::span<ShardedEngine* const> engines,
                                                 const StateTree& state, bool strict = true);

/// state_of() an optimizer of `engine`'s pieces, with TensorShards in the place of pieces. Not Collective.
LOCKSTEP_API StateTree sharded_optimizer_state(const ShardedEngine& engine, Optimizer& optimizer,
                                               ShardCopies copies = ShardCopies::kOne);

/// Takes it back, or one with whole tensors. Not Collective. @throws CheckpointError as load_state()
LOCKSTEP_API void load_sharded_optimizer_state(const ShardedEngine& engine, Optimizer& optimizer,
                                               const StateTree& state);

}  // namespace lockstep
