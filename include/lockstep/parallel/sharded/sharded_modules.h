// Modules that are sharded: how one becomes so in a loop of one's own, which of this process are, and what
// they hold, for checkpoints.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/parallel/sharded/sharded_engine.h>
#include <lockstep/state/module_state.h>
#include <lockstep/state/state_tree.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

/// Shards `module` over the ranks of `comm`; torch.distributed.fsdp.fully_shard, for the whole model at once:
///
///     auto sharded = ls::fully_shard(model.ptr(), comm, {.auto_wrap_policy = ls::types<Block>()});
///     auto optimizer = ls::OptimizerFactory(ls::AdamW{}).create(sharded->parameters());
///     for (...) {
///       optimizer->zero_grad();
///       sharded->backward(loss_of(model->forward(x)));
///       sharded->clip_grad_norm(optimizer->parameters(), 1.0);
///       optimizer->step();
///       sharded->after_step();
///     }
///
/// It stays sharded as long as it lives, or until restore_sharded(). Collective, blocking.
/// @throws as ShardedEngine's constructor; ConfigError where it is sharded already
LOCKSTEP_API std::shared_ptr<ShardedEngine> fully_shard(const std::shared_ptr<torch::nn::Module>& module,
                                                        const Communicator& comm, const Fsdp& options = {},
                                                        int ranks_per_node = 1);

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

namespace lockstep::detail {

/// As restore_sharded(); leaves what is sharded as a part of another module as it is, for those who only use
/// it. Collective, blocking.
void restore_engines_of(const torch::nn::Module& module);

}  // namespace lockstep::detail
