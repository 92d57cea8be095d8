// What a checkpoint of DeepSpeed holds, as the StateTrees that models and optimizers take.
#include "checkpoint/state_formats.h"

#include <algorithm>
#include <array>
#include <optional>

#include <ATen/ops/full_like.h>
#include <c10/util/StringUtil.h>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

#include "checkpoint/stored_weights.h"
#include "formats/zero_checkpoint.h"

namespace lockstep::detail {
namespace {

using Shape = std::vector<std::int64_t>;

/// Keys of a checkpoint that are no client state: the model, the optimizer, and DeepSpeed's own bookkeeping.
constexpr std::array kOfDeepSpeed{"module",
                                  "buffer_names",
                                  "optimizer",
                                  "param_shapes",
                                  "frozen_param_shapes",
                                  "frozen_param_fragments",
                                  "shared_params",
                                  "ds_config"};

/// The tensor, or the run of it that `wanted` has.
StateValue zero_value(const StoredElements& elements, const Shape& shape, const StateValue* wanted) {
  const auto* shard = wanted == nullptr ? nullptr : std::get_if<TensorShard>(wanted);
  if (shard == nullptr || shard->shape != shape) return float32_tensor(elements, shape);
  const auto count = shard->elements.numel();
  const auto run =
      slice_of(elements, static_cast<std::uint64_t>(shard->begin), static_cast<std::uint64_t>(count));
  return TensorShard{.elements = float32_tensor(run, {count}), .shape = shape, .begin = shard->begin};
}

/// The state of one parameter.
StateTree zero_kinds(const ZeroCheckpoint& checkpoint, const ZeroOptimizer& optimizer, std::size_t number,
                     const StateTree& own) {
  StateTree kinds;
  for (const auto& [kind, value] : own.entries()) {
    if (kind == "step") {
      kinds.set(kind, at::full_like(own.get<at::Tensor>(kind), optimizer.steps_of(number)));
    } else {
      kinds.set(kind,
                zero_value(optimizer.state_of(number, kind), checkpoint.parameters()[number].shape, &value));
    }
  }
  return kinds;
}

/// The settings of DeepSpeed's groups, for the program's groups, which may divide the parameters otherwise.
class GroupSettings {
 public:
  GroupSettings(const ZeroCheckpoint& checkpoint, const ZeroOptimizer& optimizer, bool warns)
      : checkpoint_(checkpoint), optimizer_(optimizer), warns_(warns) {}

  /// `own`, a group of the program, with the settings on which the groups of all its parameters agree.
  StateTree taken_over(StateTree own) const {
    const auto names = own.get_all<std::string>("parameters");
    for (const auto* key : {"lr", "weight_decay"}) {
      const auto found = own.contains(key) ? common(names, key, 1) : Numbers();
      if (!found.empty()) own.set(key, found.front());
    }
    const auto betas = own.contains("betas") ? common(names, "betas", 2) : Numbers();
    if (!betas.empty()) own.set("betas", StateList(betas));
    return own;
  }

 private:
  using Numbers = std::vector<double>;

  static std::string text_of(const Numbers& numbers) {
    return numbers.empty() ? "none" : c10::Join(", ", numbers);
  }

  Numbers setting_of(std::size_t parameter, const char* key, std::size_t count) const {
    auto found = optimizer_.setting_of(parameter, key);
    if (found.empty() || found.size() == count) return found;
    refuse_key(checkpoint_.files().optimizers.front(), key + std::string(" of a group"),
               std::to_string(count) + (count == 1 ? " number" : " numbers"), text_of(found));
  }

  /// Empty where the groups lack the setting, or differ in it.
  Numbers common(const std::vector<std::string>& names, const char* key, std::size_t count) const {
    std::optional<Numbers> all;
    for (const auto& name : names) {
      const auto parameter = optimizer_.find(name);
      if (!parameter) continue;  // frozen
      const auto found = setting_of(*parameter, key, count);
      if (!all) all = found;
      if (found == *all) continue;
      if (warns_)
        warn_once("deepspeed_state " + std::string(key) + " of " + names.front(),
                  "DeepSpeed's groups differ in " + std::string(key) + ": " + text_of(*all) + " and, of " +
                      name + ", " + text_of(found) +
                      "; the group keeps its own: give the optimizer the groups that were saved");
      return {};
    }
    return all.value_or(Numbers());
  }

  const ZeroCheckpoint& checkpoint_;
  const ZeroOptimizer& optimizer_;
  bool warns_;
};

std::optional<std::int64_t> scheduler_steps(const pickle::Dict& scheduler) {
  const auto number = [&](const char* key) {
    const auto* value = scheduler.find(key);
    return value == nullptr ? nullptr : value->as<std::int64_t>();
  };
  if (const auto* last = number("last_batch_iteration")) return *last + 1;  // DeepSpeed counts from -1
  if (const auto* last = number("last_epoch")) return *last;
  return std::nullopt;
}

}  // namespace

StateTree deepspeed_model(const ZeroCheckpoint& checkpoint, const StateTree& wanted) {
  std::vector<StateTree::Entry> entries;
  for (const auto& tensor : zero_weights(checkpoint))
    entries.push_back({tensor.name, zero_value(tensor.elements, tensor.shape, wanted.find(tensor.name))});
  return StateTree(std::move(entries));
}

StateTree deepspeed_optimizer(const ZeroCheckpoint& checkpoint, const StateTree& own, bool warns) {
  const ZeroOptimizer optimizer(checkpoint);
  StateTree state = own;
  StateTree parameters;
  for (const auto& [name, kinds] : own.get<StateTree>("state").entries())
    parameters.set(name,
                   zero_kinds(checkpoint, optimizer, optimizer.number_of(name), std::get<StateTree>(kinds)));
  const GroupSettings settings(checkpoint, optimizer, warns);
  StateList groups;
  for (auto& group : own.get_all<StateTree>("groups"))
    groups.push_back(settings.taken_over(std::move(group)));
  state.set("state", std::move(parameters));
  state.set("groups", std::move(groups));
  return state;
}

StateTree deepspeed_scheduler(const ZeroCheckpoint& checkpoint, const StateTree& own) {
  const auto& file = checkpoint.model();
  const auto* held = file.root().find("lr_scheduler");
  if (held == nullptr || held->as<pickle::None>() != nullptr) return {};
  const auto steps = scheduler_steps(held_in<pickle::Dict>(file, file.root(), "lr_scheduler"));
  if (!steps) refuse_key(file, "lr_scheduler", "last_batch_iteration or last_epoch", "neither");
  StateTree state = own;
  state.set("last_step", *steps);
  return state;
}

StateTree deepspeed_client_state(const ZeroCheckpoint& checkpoint) {
  const auto& file = checkpoint.model();
  pickle::Dict rest;
  for (const auto& [key, value] : file.root().entries) {
    const auto* name = key.as<std::string>();
    if (name != nullptr && std::ranges::find(kOfDeepSpeed, *name) == kOfDeepSpeed.end())
      rest.set(*name, value);
  }
  return StateOfPickle(file.contents(), file.where()).tree(rest);
}

}  // namespace lockstep::detail
