#include <lockstep/parallel/sharded/sharded_state.h>

#include <optional>
#include <unordered_map>

#include <lockstep/base/error.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/torch.h>

#include "state/module_tensors.h"

namespace lockstep {
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
