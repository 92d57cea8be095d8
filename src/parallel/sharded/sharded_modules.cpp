// Which modules of this process are sharded, and what they hold.
#include <lockstep/parallel/sharded/sharded_modules.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <unordered_map>

#include <lockstep/base/error.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/torch.h>

#include "comm/join/process_group.h"
#include "parallel/activations/module_policies.h"
#include "parallel/module_states.h"
#include "state/module_tensors.h"

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

namespace {

using Engines = std::span<ShardedEngine* const>;

std::optional<TensorShard> shard_in(Engines engines, const at::Tensor& parameter, ShardCopies copies) {
  for (const auto* engine : engines) {
    if (auto shard = engine->shard_of(parameter, copies)) return shard;
  }
  return std::nullopt;
}

// Buffers may differ between ranks; those of rank 0 count.
TensorShard from_rank_0(const at::Tensor& tensor, const Communicator& comm) {
  const auto elements = tensor.detach().reshape({-1});
  return {.elements = comm.rank() == 0 ? elements : elements.narrow(0, 0, 0), .shape = tensor.sizes().vec()};
}

// What is not sharded, in its own type: mixed precision may have changed that of a buffer.
at::Tensor own_type(Engines engines, const at::Tensor& tensor) {
  for (const auto* engine : engines) {
    auto own = engine->in_own_type(tensor);
    if (own.scalar_type() != tensor.scalar_type()) return own;
  }
  return tensor.detach();
}

// Calls use(name, tensor) for all parameters and buffers, by every name that they have.
template <class Use>
void for_each_tensor(const torch::nn::Module& module, Use&& use) {
  for (const auto& item : module.named_parameters()) use(item.key(), item.value());
  for (const auto& item : module.named_buffers()) {
    if (item.value().defined()) use(item.key(), item.value());
  }
}

std::string kind_of(const StateValue& value) {
  const auto* shard = std::get_if<TensorShard>(&value);
  return shard ? detail::tensor_kind(shard->elements.scalar_type(), shard->shape) : value.describe();
}

detail::TensorKinds kinds_of(const StateTree& state) {
  detail::TensorKinds kinds;
  for (const auto& [name, value] : state.entries()) kinds.emplace(name, kind_of(value));
  return kinds;
}

// The elements that `own` covers, of a whole tensor or of the same run.
at::Tensor run_of(const StateValue& saved, const TensorShard& own, const std::string& path) {
  if (const auto* whole = std::get_if<at::Tensor>(&saved))
    return whole->reshape({-1}).narrow(0, own.begin, own.elements.numel());
  const auto& shard = std::get<TensorShard>(saved);
  if (shard.elements.numel() != own.elements.numel() ||
      (own.elements.numel() > 0 && shard.begin != own.begin)) {
    throw CheckpointError("parallel",
                          {.what = "the run of " + path + " is another one",
                           .expected = c10::str(own.elements.numel(), " elements from ", own.begin),
                           .got = c10::str(shard.elements.numel(), " elements from ", shard.begin)});
  }
  return shard.elements;
}

// `target` is what is not sharded.
void copy_entry(const StateValue& saved, const StateValue& own, const at::Tensor& target,
                const std::string& name) {
  if (const auto* shard = std::get_if<TensorShard>(&own)) {
    shard->elements.copy_(run_of(saved, *shard, name));
  } else {
    const TensorShard whole{.elements = target.detach().reshape({-1}), .shape = target.sizes().vec()};
    target.detach().copy_(run_of(saved, whole, name).view(target.sizes()));
  }
}

bool is_sharded_kind(const std::string& kind) { return kind != "step"; }

// The tree with what change(parameter, kind, value) makes of each tensor of the optimizer's state.
template <class Change>
StateTree with_state(const StateTree& tree, Change&& change) {
  StateTree parameters;
  const auto& state = tree.get<StateTree>("state");
  for (const auto& [parameter, kinds] : state.entries()) {
    StateTree changed;
    for (const auto& [kind, value] : std::get<StateTree>(kinds).entries())
      changed.set(kind, is_sharded_kind(kind) ? change(parameter, kind, value) : value);
    parameters.set(parameter, std::move(changed));
  }
  auto result = tree;
  result.set("state", std::move(parameters));
  return result;
}

}  // namespace

std::map<std::string, at::Tensor> full_state(const torch::nn::Module& module, Engines engines,
                                             WholeValues type) {
  std::unordered_map<const at::TensorImpl*, at::Tensor> values;
  for (auto* engine : engines) engine->gather_whole(values, type);
  std::map<std::string, at::Tensor> state;
  if (engines.empty() || engines.front()->communicator().rank() != 0) return state;
  for_each_tensor(module, [&](const std::string& name, const at::Tensor& tensor) {
    const auto found = values.find(tensor.unsafeGetTensorImpl());
    state[name] = found == values.end() ? own_type(engines, tensor) : found->second;
  });
  return state;
}

StateTree sharded_state(const torch::nn::Module& module, Engines engines, ShardCopies copies) {
  StateTree state;
  for_each_tensor(module, [&](const std::string& name, const at::Tensor& tensor) {
    if (auto shard = shard_in(engines, tensor, copies)) {
      state.set(name, *std::move(shard));
    } else if (copies == ShardCopies::kOne && !engines.empty()) {
      state.set(name, from_rank_0(own_type(engines, tensor), engines.front()->communicator()));
    } else {
      state.set(name, own_type(engines, tensor));
    }
  });
  return state;
}

IncompatibleKeys load_sharded_state(const torch::nn::Module& module, Engines engines, const StateTree& state,
                                    bool strict) {
  const auto own = sharded_state(module, engines, ShardCopies::kAll);
  auto keys = detail::match_tensors(kinds_of(own), kinds_of(state), strict, "the state",
                                    state.path().empty() ? "" : "state " + state.path());
  const torch::NoGradGuard no_grad;
  for (auto* engine : engines) {
    engine->forget_gathered();
    engine->forget_errors();
  }
  for_each_tensor(module, [&](const std::string& name, const at::Tensor& tensor) {
    if (const auto* saved = state.find(name)) copy_entry(*saved, *own.find(name), tensor, name);
  });
  return keys;
}

StateTree sharded_optimizer_state(const ShardedEngine& engine, Optimizer& optimizer, ShardCopies copies) {
  return with_state(state_of(optimizer),
                    [&](const std::string& parameter, const std::string&, const StateValue& value) {
                      return StateValue(engine.shard_of(parameter, std::get<at::Tensor>(value), copies));
                    });
}

void load_sharded_optimizer_state(const ShardedEngine& engine, Optimizer& optimizer, const StateTree& state) {
  std::unordered_map<std::string, at::Tensor> pieces;
  for (const auto& [name, tensor] : optimizer.parameters()) pieces.emplace(name, tensor);
  const auto to_piece = [&](const std::string& parameter, const std::string& kind, const StateValue& value) {
    const auto piece = pieces.find(parameter);
    if (piece == pieces.end()) return value;  // named by the optimizer
    const auto own = engine.shard_of(parameter, piece->second);
    const auto* whole = std::get_if<at::Tensor>(&value);
    const auto* shard = std::get_if<TensorShard>(&value);
    const at::IntArrayRef shape = shard ? at::IntArrayRef(shard->shape) : whole ? whole->sizes() : own.shape;
    const auto path = kind + " of " + parameter;
    if (shape != own.shape) {
      throw CheckpointError("parallel", {.what = "optimizer state " + path + " does not fit",
                                         .expected = c10::str("shape ", at::IntArrayRef(own.shape)),
                                         .got = c10::str(shape),
                                         .hint = "load state that was saved for the same model"});
    }
    return StateValue(run_of(value, own, path));
  };
  lockstep::load_state(optimizer, with_state(state, to_piece));
}

}  // namespace lockstep
