#include <lockstep/parallel/sharded/fully_shard.h>

#include <lockstep/base/error.h>
#include <lockstep/parallel/sharded/sharded_modules.h>
#include <lockstep/torch.h>

namespace lockstep {

std::shared_ptr<ShardedEngine> fully_shard(const std::shared_ptr<torch::nn::Module>& module,
                                           const Communicator& comm, const Fsdp& options,
                                           int ranks_per_node) {
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
