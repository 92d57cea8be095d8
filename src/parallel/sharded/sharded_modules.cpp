#include <lockstep/parallel/sharded/sharded_modules.h>

#include <algorithm>
#include <mutex>

#include <lockstep/base/error.h>
#include <lockstep/parallel/sharded/fully_shard.h>
#include <lockstep/torch.h>

#include "comm/join/process_group.h"
#include "parallel/module_states.h"
#include "parallel/sharded/restore_engines.h"

namespace lockstep {
namespace {

struct Kept {
  const torch::nn::Module* address;
  std::weak_ptr<torch::nn::Module> module;
  std::shared_ptr<ShardedEngine> engine;
};

struct Registry {
  std::mutex mutex;  // guards the rows
  std::vector<Kept> rows;
};

// Never destroyed: models may be static, too.
Registry& registry() {
  static auto* all = new Registry;
  return *all;
}

bool is_dropped(const Kept& row) { return row.module.expired(); }
bool has_ended(const Kept& row) { return row.engine->is_over(); }
bool is_alive(const Kept& row) { return !is_dropped(row) && !has_ended(row); }

// Takes rows out; their engines end outside of the lock.
template <class Test>
std::vector<Kept> take_where(const Test& test) {
  auto& [mutex, rows] = registry();
  const std::lock_guard lock(mutex);
  std::vector<Kept> taken;
  for (auto& row : rows) {
    if (test(row)) taken.push_back(std::move(row));
  }
  std::erase_if(rows, [](const Kept& row) { return row.engine == nullptr; });
  return taken;
}

// Of one that is sharded as a whole, nothing can be restored alone.
void refuse_parts(const torch::nn::Module& module) {
  const auto own = sharded_engines(module);
  for (const auto& named : module.named_parameters()) {
    const auto engine = sharded_engine_of(named.value());
    if (!engine || std::ranges::find(own, engine) != own.end()) continue;
    throw ConfigError(
        "parallel",
        {.what = "restore_sharded(): " + module.name() + " has a part of a module that is sharded",
         .expected = "a module that was set up as such, or one that such modules are parts of",
         .got = "parameter " + named.key() + " of it, there " + engine->name_of(named.value()),
         .hint = "restore the module that was set up, all of it"});
  }
}

}  // namespace

void forget_dropped_sharded() {
  (void)take_where([](const Kept& row) { return !is_alive(row); });
}

void keep_sharded(const std::shared_ptr<torch::nn::Module>& module, std::shared_ptr<ShardedEngine> engine) {
  detail::set_process_group_exit_hook(&forget_dropped_sharded);
  (void)take_where([&](const Kept& row) { return !is_alive(row) || row.address == module.get(); });
  auto& [mutex, rows] = registry();
  const std::lock_guard lock(mutex);
  rows.push_back({.address = module.get(), .module = module, .engine = std::move(engine)});
}

std::vector<std::shared_ptr<ShardedEngine>> sharded_engines(const torch::nn::Module& module) {
  const auto parts = detail::parts_of(module);
  auto& [mutex, rows] = registry();
  const std::lock_guard lock(mutex);
  std::vector<std::shared_ptr<ShardedEngine>> engines;
  for (const auto& row : rows) {
    if (parts.contains(row.address) && is_alive(row)) engines.push_back(row.engine);
  }
  return engines;
}

std::shared_ptr<ShardedEngine> sharded_engine_of(const at::Tensor& parameter) {
  auto& [mutex, rows] = registry();
  const std::lock_guard lock(mutex);
  const auto has_it = [&](const Kept& row) {
    return is_alive(row) && !row.engine->name_of(parameter).empty();
  };
  const auto found = std::ranges::find_if(rows, has_it);
  return found == rows.end() ? nullptr : found->engine;
}

void detail::restore_engines_of(const torch::nn::Module& module) {
  const auto parts = parts_of(module);
  const auto taken =
      take_where([&](const Kept& row) { return parts.contains(row.address) && !is_dropped(row); });
  for (const auto& row : taken) {
    if (!has_ended(row)) row.engine->restore();
  }
  mark_policies_again(module);
}

void restore_sharded(const torch::nn::Module& module) {
  refuse_parts(module);
  detail::restore_engines_of(module);
}

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
