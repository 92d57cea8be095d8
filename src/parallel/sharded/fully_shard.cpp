#include <lockstep/parallel/sharded/fully_shard.h>

#include <lockstep/base/error.h>
#include <lockstep/parallel/sharded/sharded_modules.h>
#include <lockstep/torch.h>

namespace lockstep {
namespace {

void check_arguments(const torch::nn::Module* module, const Fsdp& options, int ranks_per_node) {
  if (module == nullptr)
    throw ConfigError("parallel",
                      {.what = "fully_shard: the module", .expected = "one", .got = "a null pointer"});
  if (ranks_per_node < 1)
    throw ConfigError(
        "parallel",
        {.what = "fully_shard: ranks_per_node", .expected = ">= 1", .got = std::to_string(ranks_per_node)});
  const bool is_hybrid = options.sharding_strategy == ShardingStrategy::kHybridShard ||
                         options.sharding_strategy == ShardingStrategy::kHybridShardZero2;
  if (is_hybrid && options.device_mesh.empty() && ranks_per_node == 1)
    throw ConfigError(
        "parallel",
        {.what = "fully_shard: sharding_strategy " +
                 OptionType<ShardingStrategy>::print(options.sharding_strategy) + " without a mesh",
         .expected = "device_mesh {copies, shards}, or the number of ranks_per_node",
         .got = "neither: one rank would hold a whole copy"});
}

}  // namespace

std::shared_ptr<ShardedEngine> fully_shard(const std::shared_ptr<torch::nn::Module>& module,
                                           const Communicator& comm, const Fsdp& options,
                                           int ranks_per_node) {
  check_arguments(module.get(), options, ranks_per_node);
  forget_dropped_sharded();
  if (!sharded_engines(*module).empty()) {
    throw ConfigError("parallel", {.what = module->name() + ", or a part of it, is sharded already",
                                   .expected = "a module with all its parameters",
                                   .hint = "call restore_sharded() before"});
  }
  auto engine = std::make_shared<ShardedEngine>(*module, comm, options, ranks_per_node);
  keep_sharded(module, engine);
  return engine;
}

}  // namespace lockstep
