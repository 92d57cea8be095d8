// Optimizers and schedulers as StateTrees.
#include <lockstep/optim/optimizer.h>
#include <lockstep/optim/scheduler.h>

#include <utility>

#include <lockstep/base/error.h>

namespace lockstep {
namespace {

using Group = Optimizer::Group;

StateTree tree_of(const Group& group) {
  StateTree tree;
  tree.set("pattern", group.pattern);
  tree.set("parameters", StateList(group.parameters));
  tree.set("lr", group.lr);
  tree.set("initial_lr", group.initial_lr);
  tree.set("weight_decay", group.weight_decay);
  if (group.momentum) tree.set("momentum", *group.momentum);
  if (group.betas) tree.set("betas", StateList(*group.betas));
  return tree;
}

[[noreturn]] void refuse(const std::string& path, std::string expected, std::string got) {
  throw CheckpointError("optim", {.what = "optimizer state " + path + " does not fit",
                                  .expected = std::move(expected),
                                  .got = std::move(got),
                                  .hint = "load state that was saved for the same model and optimizer"});
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::array<double, 2> betas_of(const StateTree& tree) {
  const auto& betas = tree.get<StateList>("betas");
  return {betas.get<double>(0), betas.get<double>(1)};
}

// `own` with the values of `tree`: the choice of parameters is the program's.
Group restored(Group own, const StateTree& tree) {
  const auto names = tree.get_all<std::string>("parameters");
  if (names != own.parameters) refuse(tree.path() + "/parameters", joined(own.parameters), joined(names));
  own.lr = tree.get<double>("lr");
  own.initial_lr = tree.get<double>("initial_lr");
  own.weight_decay = tree.get<double>("weight_decay");
  if (own.momentum) own.momentum = tree.get<double>("momentum");
  if (own.betas) own.betas = betas_of(tree);
  return own;
}

std::vector<Group> restored_groups(const Optimizer& optimizer, const StateTree& state) {
  const auto trees = state.get_all<StateTree>("groups");
  const auto& own = optimizer.groups();
  if (trees.size() != own.size()) {
    refuse("groups", std::to_string(own.size()) + " parameter groups", std::to_string(trees.size()));
  }
  std::vector<Group> groups;
  for (std::size_t i = 0; i < own.size(); ++i) groups.push_back(restored(own[i], trees[i]));
  return groups;
}

std::vector<OptimizerState> tensors_of(const StateTree& state) {
  std::vector<OptimizerState> tensors;
  const auto& parameters = state.get<StateTree>("state");
  for (const auto& parameter : parameters.entries()) {
    const auto& kinds = parameters.get<StateTree>(parameter.name);
    for (const auto& kind : kinds.entries()) {
      tensors.push_back({parameter.name, kind.name, kinds.get<at::Tensor>(kind.name)});
    }
  }
  return tensors;
}

}  // namespace

StateTree state_of(Optimizer& optimizer) {
  StateList groups;
  for (const auto& group : optimizer.groups()) groups.push_back(tree_of(group));
  StateTree parameters;
  StateTree kinds;
  const auto entries = optimizer.state();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    kinds.set(entries[i].kind, entries[i].tensor);
    const bool last = i + 1 == entries.size() || entries[i + 1].parameter != entries[i].parameter;
    if (last) parameters.set(entries[i].parameter, std::exchange(kinds, {}));
  }
  StateTree state;
  state.set("name", std::string(optimizer.name()));
  state.set("groups", std::move(groups));
  state.set("state", std::move(parameters));
  return state;
}

void load_state(Optimizer& optimizer, const StateTree& state) {
  const auto& name = state.get<std::string>("name");
  if (name != optimizer.name()) refuse("name", std::string(optimizer.name()), name);
  auto groups = restored_groups(optimizer, state);
  // First: which state there is depends on the settings, such as whether there is momentum.
  std::swap(optimizer.groups(), groups);
  try {
    optimizer.load_state(tensors_of(state));
  } catch (...) {
    std::swap(optimizer.groups(), groups);
    throw;
  }
}

StateTree state_of(const Scheduler& scheduler) {
  const auto& own = scheduler.state();
  StateTree state;
  state.set("last_step", own.last_step);
  state.set("base_lrs", StateList(own.base_lrs));
  state.set("last_lrs", StateList(own.last_lrs));
  state.set("best", own.best);
  state.set("bad_steps", own.bad_steps);
  state.set("cooldown_left", own.cooldown_left);
  return state;
}

void load_state(Scheduler& scheduler, const StateTree& state) {
  scheduler.load_state({.last_step = state.get<std::int64_t>("last_step"),
                        .base_lrs = state.get_all<double>("base_lrs"),
                        .last_lrs = state.get_all<double>("last_lrs"),
                        .best = state.get<double>("best"),
                        .bad_steps = state.get<std::int64_t>("bad_steps"),
                        .cooldown_left = state.get<std::int64_t>("cooldown_left")});
}

}  // namespace lockstep
