// The part of Fabric that saves and loads.
#include "fabric/fabric_checkpoint.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/checkpoint/checkpoint.h>
#include <lockstep/fabric/fabric.h>
#include <lockstep/optim/scheduler.h>
#include <lockstep/state/module_state.h>
#include <lockstep/torch.h>

#include "checkpoint/state_formats.h"
#include "checkpoint/together.h"
#include "fabric/fabric_state.h"
#include "formats/file_text.h"
#include "formats/zero_checkpoint.h"
#include "strategy/deepspeed_strategy.h"
#include "strategy/same_optimizer.h"
#include "strategy/scaled_step.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

/// Reads from a checkpoint of DeepSpeed what a state is to be set to.
struct DeepSpeedReader {
  const ZeroCheckpoint& checkpoint;
  Strategy& strategy;
  bool strict;
  bool warns;

  StateTree operator()(const std::shared_ptr<torch::nn::Module>& module) const {
    return deepspeed_model(checkpoint, strategy.wanted_state(*module));
  }
  StateTree operator()(const std::shared_ptr<FabricOptimizer>& optimizer) const {
    if (checkpoint.stage() == 0 && !strict) return {};
    auto own = strategy.wanted_optimizer_state(optimizer->optimizer());
    if (own.empty()) own = strategy.optimizer_state(optimizer->optimizer());
    return deepspeed_optimizer(checkpoint, own, warns);
  }
  StateTree operator()(Scheduler* scheduler) const {
    return deepspeed_scheduler(checkpoint, state_of(*scheduler));
  }
  template <class Value>
  StateTree operator()(const Value*) const {
    return {};
  }
};

/// Of 16-bit floating point, as its own state with the scale that was saved. A static one stays, as it does
/// wherever a state is loaded.
StateTree with_scale(const Fabric& fabric, const ZeroCheckpoint& checkpoint) {
  auto precision = fabric.precision().state();
  const auto scale = checkpoint.stage() != 0 ? ZeroOptimizer(checkpoint).loss_scale() : std::nullopt;
  if (scale && precision.contains("scale")) precision.set("scale", *scale);
  return precision;
}

StateTree read_all(const Fabric& fabric, const ZeroCheckpoint& checkpoint, const NamedStates& states,
                   bool strict) {
  auto saved = deepspeed_client_state(checkpoint);
  for (const auto& [name, state] : states) {
    auto tree = std::visit(DeepSpeedReader{checkpoint, fabric.strategy(), strict, fabric.is_global_zero()},
                           state.target());
    if (!tree.empty()) saved.set(name, std::move(tree));
  }
  if (has_optimizer(states) && !fabric.precision().state().empty())
    saved.set(fabric.precision().state_key(), with_scale(fabric, checkpoint));
  return saved;
}

/// What must be the same on all ranks.
std::string identity_of(const ZeroCheckpoint& checkpoint) {
  const auto& files = checkpoint.files();
  return in_quotes(files.folder.filename().string()) + " of stage " + std::to_string(files.stage) +
         ", saved by " + std::to_string(std::max(files.optimizers.size(), files.models.size())) + " ranks";
}

}  // namespace

StateTree read_deepspeed(const Fabric& fabric, const fs::path& folder, const NamedStates& states,
                         bool strict) {
  StateTree saved;
  const auto identities = read_together(fabric.strategy().communicator(), folder, [&] {
    const ZeroCheckpoint checkpoint(folder);
    saved = read_all(fabric, checkpoint, states, strict);
    return identity_of(checkpoint);
  });
  for (std::size_t rank = 0; rank < identities.size(); ++rank)
    if (identities[rank] != identities.front())
      throw CheckpointError("fabric", {.what = "checkpoint " + folder.string() + " cannot be used",
                                       .expected = identities.front() + ", as on rank 0",
                                       .got = identities[rank],
                                       .where = "rank " + std::to_string(rank)});
  return saved;
}

}  // namespace lockstep::detail

namespace lockstep {
namespace {

// Gives the state that a StateRef refers to.
struct Giver {
  Strategy& strategy;

  StateValue operator()(const std::shared_ptr<torch::nn::Module>& module) const {
    strategy.check_replicas(*module);
    return strategy.saved_state(*module);
  }
  StateValue operator()(const std::shared_ptr<FabricOptimizer>& optimizer) const {
    detail::warn_of_other_settings(optimizer->optimizer(), strategy.communicator());
    return strategy.optimizer_state(optimizer->optimizer());
  }
  StateValue operator()(const Scheduler* scheduler) const { return state_of(*scheduler); }
  StateValue operator()(const int* value) const { return std::int64_t{*value}; }
  template <class Value>
  StateValue operator()(const Value* value) const {
    return *value;
  }
};

// Says which runs of what was saved are wanted.
struct Wanter {
  Strategy& strategy;

  StateTree operator()(const std::shared_ptr<torch::nn::Module>& module) const {
    return strategy.wanted_state(*module);
  }
  StateTree operator()(const std::shared_ptr<FabricOptimizer>& optimizer) const {
    return strategy.wanted_optimizer_state(optimizer->optimizer());
  }
  template <class Value>
  StateTree operator()(const Value&) const {
    return {};
  }
};

// Takes what was saved under `name`.
struct Taker {
  Strategy& strategy;
  const StateTree& saved;
  const std::string& name;
  bool strict;

  void operator()(const std::shared_ptr<torch::nn::Module>& module) const {
    warn_of(strategy.load_module(*module, saved.get<StateTree>(name), strict), "\"" + name + "\"");
  }
  void operator()(const std::shared_ptr<FabricOptimizer>& optimizer) const {
    strategy.load_optimizer(optimizer->optimizer(), saved.get<StateTree>(name));
  }
  void operator()(Scheduler* scheduler) const { load_state(*scheduler, saved.get<StateTree>(name)); }
  void operator()(at::Tensor* tensor) const { saved.copy_to(name, *tensor); }
  void operator()(int* value) const {
    const auto number = saved.get<std::int64_t>(name);
    if (number < std::numeric_limits<int>::min() || number > std::numeric_limits<int>::max()) {
      throw CheckpointError(
          "fabric",
          {.what = "the integer " + name, .expected = "one that fits an int", .got = std::to_string(number)});
    }
    *value = static_cast<int>(number);
  }
  template <class Value>
  void operator()(Value* value) const {
    *value = saved.get<Value>(name);
  }
};

[[noreturn]] void refuse_twice(const std::string& name) {
  throw ConfigError("fabric",
                    {.what = "save()", .expected = "names that differ", .got = "\"" + name + "\" twice"});
}

// Of a state with entries those that its filter wants.
StateValue filtered(const std::string& name, StateValue state, const SaveFilter& filters) {
  const auto filter = filters.find(name);
  if (filter == filters.end()) return state;
  auto* const tree = std::get_if<StateTree>(&state);
  if (tree == nullptr) {
    throw ConfigError("fabric", {.what = "save() has a filter of \"" + name + "\"",
                                 .expected = "filters of models, optimizers, schedulers and StateTrees",
                                 .got = "a value without entries"});
  }
  StateTree wanted;
  for (const auto& [entry, value] : tree->entries()) {
    if (filter->second(entry, value)) wanted.set(entry, value);
  }
  return wanted;
}

void check_filters(const NamedStates& states, const SaveFilter& filters) {
  for (const auto& [name, filter] : filters) {
    const auto is_it = [&, &name = name](const auto& state) { return state.first == name; };
    if (std::ranges::any_of(states, is_it)) continue;
    std::string known;
    for (const auto& [other, state] : states) known += (known.empty() ? "" : ", ") + other;
    throw ConfigError("fabric", {.what = "save() has a filter of what is not saved",
                                 .expected = "one of " + known,
                                 .got = "\"" + name + "\""});
  }
}

[[noreturn]] void refuse_missing(const std::filesystem::path& folder, const std::string& name,
                                 const StateTree& saved) {
  std::string known;
  for (const auto& entry : saved.entries()) known += (known.empty() ? "" : ", ") + entry.name;
  throw CheckpointError("fabric", {.what = "checkpoint " + folder.string() + " has no \"" + name + "\"",
                                   .expected = known.empty() ? "nothing: it is empty" : "one of " + known,
                                   .got = "\"" + name + "\"",
                                   .hint = "load(..., {.strict = false}) leaves it as it is"});
}

}  // namespace

bool detail::has_optimizer(const NamedStates& states) {
  return std::ranges::any_of(states, [](const auto& state) {
    return std::holds_alternative<std::shared_ptr<FabricOptimizer>>(state.second.target());
  });
}

void detail::save_states(const Fabric& fabric, const std::filesystem::path& folder, const NamedStates& states,
                         const SaveFilter& filter, std::int64_t global_step) {
  check_filters(states, filter);
  auto& strategy = fabric.strategy();
  CheckpointState all;
  for (const auto& [name, state] : states) {
    if (all.shared.contains(name)) refuse_twice(name);
    all.shared.set(name, filtered(name, std::visit(Giver{strategy}, state.target()), filter));
  }
  auto& precision = fabric.precision();
  adapt_scale(precision);
  if (auto scale = precision.state(); has_optimizer(states) && !scale.empty()) {
    const std::string key(precision.state_key());
    if (all.shared.contains(key)) refuse_twice(key);
    all.shared.set(key, std::move(scale));
  }
  save_checkpoint(folder, all, {.global_step = global_step, .strategy = std::string(strategy.name())},
                  strategy.communicator());
}

void Fabric::save(const std::filesystem::path& folder, const NamedStates& states,
                  const SaveFilter& filter) const {
  detail::save_states(*this, folder, states, filter, 0);
}

StateTree detail::take_states(const Fabric& fabric, const std::filesystem::path& folder,
                              const StateTree& saved, const NamedStates& states, const LoadOptions& options) {
  for (const auto& [name, state] : states) {
    if (saved.contains(name)) {
      std::visit(Taker{fabric.strategy(), saved, name, options.strict}, state.target());
    } else if (options.strict) {
      refuse_missing(folder, name, saved);
    }
  }
  const auto key = fabric.precision().state_key();
  const bool takes_precision =
      has_optimizer(states) && saved.contains(key) && !fabric.precision().state().empty();
  if (takes_precision) fabric.precision().load_state(saved.get<StateTree>(key));
  StateTree rest;
  for (const auto& [name, value] : saved.entries()) {
    const auto is_it = [&, &name = name](const auto& state) { return state.first == name; };
    const bool is_precision = takes_precision && name == key;
    if (!is_precision && std::ranges::none_of(states, is_it)) rest.set(name, value);
  }
  return rest;
}

StateTree Fabric::load(const std::filesystem::path& folder, const NamedStates& states,
                       const LoadOptions& options) const {
  state_->require_launched("load()");
  const auto& communicator = strategy().communicator();
  const auto place = detail::agreed_folder(communicator, folder);
  if (communicator.broadcast_bytes(detail::has_zero_files(place) ? "yes" : "no") == "yes") {
    const auto saved = detail::read_deepspeed(*this, place, states, options.strict);
    return detail::take_states(*this, place, saved, states, options);
  }
  StateTree wanted;
  for (const auto& [name, state] : states) wanted.set(name, std::visit(Wanter{strategy()}, state.target()));
  const auto saved = Checkpoint(place, Verify::kAll, communicator).shared(wanted);
  return detail::take_states(*this, folder, saved, states, options);
}

}  // namespace lockstep
