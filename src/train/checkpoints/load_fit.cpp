// The side of fit_checkpoint.h that goes on from one.
#include <set>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/base/option_type.h>
#include <lockstep/optim/optim_state.h>
#include <lockstep/state/module_state.h>
#include <lockstep/state/random_state.h>
#include <lockstep/torch.h>

#include "strategy/named_parameters.h"
#include "train/checkpoints/fit_checkpoint.h"
#include "train/checkpoints/fit_state.h"
#include "train/checkpoints/kept_settings.h"
#include "train/data/data_place.h"
#include "train/data/open_data.h"

namespace lockstep::detail {
namespace {

Metrics metrics_of(const StateTree& tree) {
  Metrics metrics;
  for (const auto& entry : tree.entries()) metrics[entry.name] = tree.get<double>(entry.name);
  return metrics;
}

// Older checkpoints do not say: what there is then counts as measured now.
void load_validations(MetricBoard& board, const StateTree& own) {
  if (!own.contains("validations")) {
    board.num_validations = board.callback.empty() ? 0 : 1;
    return;
  }
  const auto tree = own.get<StateTree>("validations");
  board.num_validations = tree.get<std::int64_t>("ended");
  for (const auto& metric : tree.get_all<StateTree>("measured"))
    board.measured[metric.get<std::string>("name")] = {
        .number = metric.get<std::int64_t>("number"),
        .epoch = metric.get<std::int64_t>("epoch"),
        .global_step = metric.get<std::int64_t>("global_step")};
}

[[noreturn]] void refuse_other_gradients(const std::string& name, const at::Tensor& saved,
                                         const at::Tensor& own) {
  throw CheckpointError(
      "train",
      {.what = "the checkpoint was taken inside of a window of accumulated gradients, and the gradient of " +
               name + " is kept in another way",
       .expected = c10::str("shape ", own.sizes()),
       .got = c10::str(saved.sizes()),
       .hint = "go on with the strategy, stage and options of the checkpoint, at least until its window "
               "is over"});
}

void load_gradients(const RunState& state, const StateTree& gradients) {
  for (const auto& [name, parameter] : state.strategy->accumulating_parameters(*state.module)) {
    if (!gradients.contains(name)) continue;
    const auto& saved = gradients.get<at::Tensor>(name);
    if (saved.sizes() != parameter.sizes()) refuse_other_gradients(name, saved, parameter);
    parameter.mutable_grad() = saved.clone();
  }
}

void load_buffers(const RunState& state, const StateTree& saved) {
  for (const auto& buffer : state.module->named_buffers()) {
    if (saved.contains(buffer.key())) saved.copy_to(buffer.key(), buffer.value());
  }
}

void load_callbacks(const RunState& state, const StateTree& saved) {
  std::set<std::string> left;
  for (const auto& entry : saved.entries()) left.insert(entry.name);
  for_each_callback(state, [&](const std::string& key, Callback& callback) {
    if (left.erase(key) > 0) callback.load_state(saved.get<StateTree>(key));
  });
  if (!state.is_global_zero()) return;
  for (const auto& key : left)
    log_warning("the checkpoint has state of callback " + key + ", which this Trainer has not");
}

// Lightning's rule: fewer epochs than are done are a mistake.
void check_epochs(const RunState& state) {
  const auto max_epochs = *state.options.max_epochs;
  if (max_epochs < 0 || state.progress.epoch <= max_epochs) return;
  throw ConfigError("train", {.what = "the checkpoint is of epoch " + std::to_string(state.progress.epoch),
                              .expected = "max_epochs of at least that",
                              .got = std::to_string(max_epochs)});
}

void say_where_from(const RunState& state, const Checkpoint& checkpoint) {
  if (!state.is_global_zero()) return;
  log_info("going on from " + checkpoint.folder().string() + ", epoch " +
           std::to_string(state.progress.epoch) + ", step " + std::to_string(state.progress.global_step));
}

// A run that goes on with another precision begins with that one's own state.
void load_precision(const RunState& state, const StateTree& shared) {
  const auto key = state.precision->state_key();
  if (shared.contains(key) && !state.precision->state().empty())
    state.precision->load_state(shared.get<StateTree>(key));
}

// From the rates that the optimizer's groups go on with.
void begin_anew(Scheduler& scheduler, const Optimizer& optimizer) {
  auto own = scheduler.state();
  own.base_lrs.clear();
  own.last_lrs.clear();
  for (const auto& group : optimizer.groups()) {
    own.base_lrs.push_back(group.initial_lr);
    own.last_lrs.push_back(group.lr);
  }
  scheduler.load_state(std::move(own));
}

// Empty where there is none. Older checkpoints do not say which one it is.
std::string saved_schedule(const StateTree& shared, const std::string& key, const std::string& own) {
  if (!shared.contains(key)) return {};
  const auto& saved = shared.get<StateTree>(key);
  if (saved.contains("kind")) return saved.get<std::string>("kind");
  return own.empty() ? "one" : own;
}

void load_schedule(const RunState& state, std::size_t number, const StateTree& shared) {
  const auto& [module, optimizer, config, scheduler] = state.optimizers[number];
  const auto key = numbered("lr_scheduler", number);
  const auto own = scheduler ? schedule_name(*config) : std::string();
  const auto saved = saved_schedule(shared, key, own);
  if (saved == own) {
    if (scheduler) load_state(*scheduler, shared.get<StateTree>(key));
    return;
  }
  if (scheduler) begin_anew(*scheduler, *optimizer);
  if (!state.is_global_zero()) return;
  const auto text = [](const std::string& name) { return name.empty() ? std::string("none") : name; };
  log_warning("the learning rate's schedule was " + text(saved) + " in the checkpoint, and is " + text(own) +
              " in this run: " +
              (scheduler ? "it begins anew"
                         : "the rate stays " + OptionType<double>::print(optimizer->groups().front().lr)));
}

void load_optimizers(const RunState& state, const StateTree& shared) {
  const auto count = state.optimizers.size();
  if (shared.contains(numbered("optimizer", count)) ||
      (count > 0 && !shared.contains(numbered("optimizer", count - 1)))) {
    throw CheckpointError("train", {.what = "the checkpoint is of a run with another number of optimizers",
                                    .expected = std::to_string(count)});
  }
  for (std::size_t i = 0; i < count; ++i) {
    const auto& [module, optimizer, config, scheduler] = state.optimizers[i];
    state.strategy->load_optimizer(*optimizer, shared.get<StateTree>(numbered("optimizer", i)));
    load_schedule(state, i, shared);
  }
}

// Of what ranks share, the runs that this one has a use for.
StateTree wanted_state(const RunState& state) {
  StateTree wanted;
  wanted.set("model", state.strategy->wanted_state(*state.module));
  for (std::size_t i = 0; i < state.optimizers.size(); ++i)
    wanted.set(numbered("optimizer", i),
               state.strategy->wanted_optimizer_state(*state.optimizers[i].optimizer));
  return wanted;
}

// The Trainer writes hyper_parameters into each of its own; what has none is of a program's own loop.
[[noreturn]] void refuse_without_run(const Checkpoint& checkpoint, const StateTree& shared) {
  std::string names;
  for (const auto& entry : shared.entries()) names += (names.empty() ? "" : ", ") + entry.name;
  const bool is_of_trainer = shared.contains("hyper_parameters");
  const std::string weights = "start from its weights with --init_weights";
  throw CheckpointError(
      "train",
      {.what = "checkpoint " + checkpoint.folder().string() + " holds no run of fit",
       .expected = "model, optimizer, loops, ...",
       .got = is_of_trainer ? "weights only"
                            : names + ", as Fabric or save_checkpoint() of the program saved them",
       .hint = is_of_trainer || shared.contains("model") ? weights
                                                         : "load it as it was saved, with Fabric::load()"});
}

void load_model(const RunState& state, const Checkpoint& checkpoint, const StateTree& model) {
  const auto keys = state.strategy->load_module(*state.module, model, state.module->strict_loading());
  if (state.is_global_zero()) warn_of(keys, checkpoint.folder().string());
}

}  // namespace

void load_fit(RunState& state, const Checkpoint& checkpoint) {
  const auto shared = checkpoint.shared(wanted_state(state));
  if (!shared.contains("loops")) refuse_without_run(checkpoint, shared);
  load_state(state.progress, shared.get<StateTree>("loops"));
  check_epochs(state);
  auto own = own_of(state, checkpoint);
  if (state.data_module && own.contains("data_module"))
    state.data_module->load_state(own.get<StateTree>("data_module"));
  restore_reloaded_data(state);
  const auto samples = state.progress.samples;
  adopt_data_place(state, shared.get<StateTree>("data"));
  // What begins anew is logged anew.
  if (state.progress.samples != samples) own.set("train_log", state.train_log.state());
  load_model(state, checkpoint, shared.get<StateTree>("model"));
  state.module->load_state(own.get<StateTree>("module"));
  const KeptSettings given(state);
  load_callbacks(state, own.get<StateTree>("callbacks"));
  TrainContext context(state);
  for (const auto& callback : state.callbacks) callback->on_load_checkpoint(context, shared);
  load_optimizers(state, shared);
  load_precision(state, shared);
  given.tell(state);
  say_where_from(state, checkpoint);
  state.moment = {
      .loops = state_of(state.progress), .own = std::move(own), .world_size = checkpoint.info().world_size};
}

void load_moment(RunState& state) {
  const auto [loops, own, world_size] = std::exchange(state.moment, std::nullopt).value();
  load_buffers(state, own.get<StateTree>("buffers"));
  state.board.callback = metrics_of(own.get<StateTree>("callback_metrics"));
  state.board.progress_bar = metrics_of(own.get<StateTree>("progress_bar_metrics"));
  load_validations(state.board, own);
  state.should_stop = state.keeps_stop = own.get<bool>("should_stop");
  state.stop_agreed = own.get<bool>("stop_agreed") || !state.stop_wishes.empty();
  if (world_size != state.communicator().size()) return;
  state.strategy->load_state(own.get<StateTree>("strategy"));
  if (has_gradients_to_keep(state)) load_gradients(state, own.get<StateTree>("gradients"));
  state.train_log.load_state(own.get<StateTree>("train_log"));
  state.evaluation_log.load_state(own.get<StateTree>("evaluation_log"));
  load_random_state(own.get<StateTree>("random"));
}

void load_weights_of(RunState& state, const Checkpoint& checkpoint) {
  load_model(state, checkpoint, checkpoint.entry("model"));
}

}  // namespace lockstep::detail
