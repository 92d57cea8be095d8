// Sharding for training loops of one's own, without Trainer or Fabric.
#pragma once

#include <memory>

#include <lockstep/base/export.h>
#include <lockstep/parallel/sharded/sharded_engine.h>

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

}  // namespace lockstep
