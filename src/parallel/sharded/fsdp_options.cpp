#include <lockstep/parallel/sharded/fsdp.h>

#include "parallel/joining_options.h"

namespace lockstep {

std::span<const OptionName<ShardingStrategy>> option_names(ShardingStrategy) {
  static constexpr OptionName<ShardingStrategy> kNames[] = {
      {"FULL_SHARD", ShardingStrategy::kFullShard},
      {"SHARD_GRAD_OP", ShardingStrategy::kShardGradOp},
      {"NO_SHARD", ShardingStrategy::kNoShard},
      {"HYBRID_SHARD", ShardingStrategy::kHybridShard},
      {"_HYBRID_SHARD_ZERO2", ShardingStrategy::kHybridShardZero2},
      {"HYBRID_SHARD_ZERO2", ShardingStrategy::kHybridShardZero2}};
  return kNames;
}

std::span<const OptionName<BackwardPrefetch>> option_names(BackwardPrefetch) {
  static constexpr OptionName<BackwardPrefetch> kNames[] = {
      {"BACKWARD_PRE", BackwardPrefetch::kBackwardPre},
      {"BACKWARD_POST", BackwardPrefetch::kBackwardPost},
      {"none", BackwardPrefetch::kNone}};
  return kNames;
}

void describe(OptionVisitor& v, Fsdp& o) {
  v.field("sharding_strategy", o.sharding_strategy, "What is cut into shards, and over which ranks");
  v.field("device_mesh", o.device_mesh,
          "Of HYBRID_SHARD: number of copies, then of shards; by default nodes and devices");
  v.field("auto_wrap_policy", o.auto_wrap_policy, "Which modules become units, gathered as a whole");
  v.field("ignored_modules", o.ignored_modules, "Modules whose parameters every rank holds whole");
  v.field("activation_checkpointing", o.activation_checkpointing,
          "Modules that backward runs again instead of keeping what they computed; true: every unit");
  v.field("activation_offload", o.activation_offload,
          "Keep what forward saves for backward on the CPU or, if that computes, on disk");
  v.field("mixed_precision", o.mixed_precision, "Types to compute and communicate in, if others");
  v.field("cpu_offload", o.cpu_offload,
          "Keep parameters, gradients and optimizer state on the CPU or, if that computes, on disk");
  v.field("offload_dir", o.offload_dir,
          "Directory for what is kept on disk; by default that of temporary files");
  v.field("backward_prefetch", o.backward_prefetch, "When backward gathers the next unit");
  v.field("forward_prefetch", o.forward_prefetch, "Gather the next unit of forward ahead of its use");
  v.field("limit_all_gathers", o.limit_all_gathers, "Free what is not needed before more is gathered");
  v.field("release_after_every_operator", o.release_after_every_operator,
          "For tests: overwrite and free gathered memory as soon as an operator is done");
  v.field("sync_module_states", o.sync_module_states,
          "Compare the ranks' modules at setup and make them equal to rank 0's");
  v.field("broadcast_buffers", o.broadcast_buffers, "Let buffers follow those of rank 0 after every step");
  v.field("state_dict_type", o.state_dict_type, "How checkpoints hold the model: whole, or in shards");
  detail::describe_joining(v, o);
}

}  // namespace lockstep
