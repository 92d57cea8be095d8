// Resuming a fit: the loading functions of fit_checkpoint.h.
#include <set>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/base/option_type.h>
#include <lockstep/optim/scheduler.h>
#include <lockstep/state/module_state.h>
#include <lockstep/torch.h>

#include "state/module_tensors.h"
#include "strategy/module_parameters.h"
#include "train/checkpoints/fit_checkpoint.h"
#include "train/checkpoints/optimizer_settings.h"
#include "train/data/data_place.h"
#include "train/data/run_data.h"
#include "train/options/accumulation_changes.h"
#include "train/options/run_record.h"

namespace lockstep::detail {
namespace {

Metrics metrics_of(const StateTree& tree) {
  Metrics metrics;
  for (const auto& entry : tree.entries()) metrics[entry.name] = tree.get<double>(entry.name);
  return metrics;
}

// Older checkpoints do not contain this: their metrics count as measured now.
void load_validations(MetricBoard& board, const StateTree& own) {
  if (!own.contains("validations")) {
    board.num_validations = board.callback.read().empty() ? 0 : 1;
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

[[noreturn]] void refuse_other_gradients(const std::string& name, const at::Tensor& saved, std::string own) {
  throw CheckpointError(
      "train",
      {.what = "the checkpoint was taken inside of a window of accumulated gradients, and the gradient of " +
               name + " is kept in another way",
       .expected = std::move(own),
       .got = c10::str(saved.sizes()),
       .hint = "go on with the strategy, stage and options of the checkpoint, at least until its window "
               "is over"});
}

// Only the module knows whether these gradients wait for a step or are of one that is over.
void warn_of_dropped_gradients(const FitParts& fit, const std::string& why) {
  if (!fit.setup.is_global_zero()) return;
  log_warning("the checkpoint has gradients of manual optimisation, which are not taken over, as " + why +
              ": where training_step accumulates gradients over several batches, that begins anew");
}

void load_gradients(const FitParts& fit, const StateTree& gradients) {
  const auto own = fit.setup.strategy->accumulating_parameters(*fit.setup.module);
  std::vector<std::pair<at::Tensor, at::Tensor>> fitting;
  for (const auto& [name, value] : gradients.entries()) {
    const auto& saved = std::get<at::Tensor>(value);
    const auto found = std::ranges::find(own, name, &NamedParameter::name);
    if (found != own.end() && found->tensor.sizes() == saved.sizes()) {
      fitting.emplace_back(found->tensor, saved);
      continue;
    }
    if (!fit.setup.module->automatic_optimization())
      return warn_of_dropped_gradients(fit, "this run's strategy keeps that of " + name + " in another way");
    refuse_other_gradients(name, saved,
                           found == own.end() ? "none" : c10::str("shape ", found->tensor.sizes()));
  }
  for (auto& [tensor, saved] : fitting)
    tensor.mutable_grad() =
        saved.to(tensor.device(), saved.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
}

void load_buffers(const FitParts& fit, const StateTree& saved) {
  for (const auto& buffer : fit.setup.module->named_buffers()) {
    if (saved.contains(buffer.key())) copy_as_loaded(saved, buffer.key(), buffer.value());
  }
}

void load_callbacks(const FitParts& fit, const StateTree& saved) {
  std::set<std::string> left;
  for (const auto& entry : saved.entries()) left.insert(entry.name);
  for_each_callback(fit, [&](const std::string& key, Callback& callback) {
    if (left.erase(key) > 0) callback.load_state(saved.get<StateTree>(key));
  });
  if (!fit.setup.is_global_zero()) return;
  for (const auto& key : left)
    log_warning("the checkpoint has state of callback " + key + ", which this Trainer does not have");
}

// As in Lightning it is an error to resume with a max_epochs below the epochs that are done.
void check_epochs(const FitParts& fit) {
  const auto max_epochs = *fit.setup.options.max_epochs;
  if (max_epochs < 0 || fit.progress.epoch <= max_epochs) return;
  throw ConfigError("train", {.what = "the checkpoint is of epoch " + std::to_string(fit.progress.epoch),
                              .expected = "max_epochs of at least that",
                              .got = std::to_string(max_epochs)});
}

void say_where_from(const FitParts& fit, const Checkpoint& checkpoint) {
  if (!fit.setup.is_global_zero()) return;
  log_info("going on from " + checkpoint.folder().string() + ", epoch " + std::to_string(fit.progress.epoch) +
           ", step " + std::to_string(fit.progress.global_step));
  record_resumed_from(fit.setup, checkpoint.folder());
}

// A run that resumes with another precision begins with that precision's initial state.
void load_precision(const FitParts& fit, const StateTree& shared) {
  const auto key = fit.setup.precision->state_key();
  if (shared.contains(key) && !fit.setup.precision->state().empty())
    fit.setup.precision->load_state(shared.get<StateTree>(key));
}

// The class of the checkpoint's schedule; empty where it has none. Older checkpoints do not name it.
std::string saved_schedule(const StateTree& shared, const std::string& key, const std::string& own) {
  if (!shared.contains(key)) return {};
  const auto& saved = shared.get<StateTree>(key);
  if (saved.contains("kind")) return saved.get<std::string>("kind");
  return own.empty() ? "one" : own;
}

void load_schedule(const FitParts& fit, std::size_t number, const StateTree& shared) {
  const auto& [module, optimizer, config, scheduler] = fit.setup.optimizers[number];
  const auto key = numbered("lr_scheduler", number);
  const auto own = scheduler ? schedule_name(*config) : std::string();
  const auto saved = saved_schedule(shared, key, own);
  if (saved == own) {
    if (scheduler) load_state(*scheduler, shared.get<StateTree>(key));
    return;
  }
  if (scheduler) *scheduler = Scheduler(config->scheduler, *optimizer);  // with the rates of its groups
  if (!fit.setup.is_global_zero()) return;
  const auto text = [](const std::string& name) { return name.empty() ? std::string("none") : name; };
  log_warning("the learning rate's schedule was " + text(saved) + " in the checkpoint, and is " + text(own) +
              " in this run: " +
              (scheduler ? "it begins anew"
                         : "the rate stays " + OptionType<double>::print(optimizer->groups().front().lr)));
}

void load_optimizers(const FitParts& fit, const StateTree& shared) {
  const auto count = fit.setup.optimizers.size();
  if (shared.contains(numbered("optimizer", count)) ||
      (count > 0 && !shared.contains(numbered("optimizer", count - 1)))) {
    throw CheckpointError("train", {.what = "the checkpoint is of a run with another number of optimizers",
                                    .expected = std::to_string(count)});
  }
  for (std::size_t i = 0; i < count; ++i) {
    const auto& [module, optimizer, config, scheduler] = fit.setup.optimizers[i];
    fit.setup.strategy->load_optimizer(*optimizer, shared.get<StateTree>(numbered("optimizer", i)));
    load_schedule(fit, i, shared);
  }
}

// The entries of the ranks' shared state that this run needs.
StateTree wanted_state(const FitParts& fit) {
  StateTree wanted;
  wanted.set("model", fit.setup.strategy->wanted_state(*fit.setup.module));
  for (std::size_t i = 0; i < fit.setup.optimizers.size(); ++i)
    wanted.set(numbered("optimizer", i),
               fit.setup.strategy->wanted_optimizer_state(*fit.setup.optimizers[i].optimizer));
  return wanted;
}

// All checkpoints of a Trainer contain hyper_parameters; those without were saved by a program's own loop.
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

void load_model(const FitParts& fit, const Checkpoint& checkpoint, const StateTree& model) {
  const auto keys =
      fit.setup.strategy->load_module(*fit.setup.module, model, fit.setup.module->strict_loading());
  if (fit.setup.is_global_zero()) warn_of(keys, checkpoint.folder().string());
}

}  // namespace

void load_fit(const FitParts& fit, const Checkpoint& checkpoint) {
  const auto shared = checkpoint.shared(wanted_state(fit));
  if (!shared.contains("loops")) refuse_without_run(checkpoint, shared);
  load_state(fit.progress, shared.get<StateTree>("loops"));
  adopt_accumulation(fit.setup, shared.get<StateTree>("loops"));
  check_epochs(fit);
  auto& before = fit.log.figures.seconds_before;
  before.reset();
  if (shared.contains(kRunSeconds)) before = shared.get<double>(kRunSeconds);
  auto own = own_of(fit.setup, checkpoint);
  if (fit.data.module && own.contains("data_module"))
    fit.data.module->load_state(own.get<StateTree>("data_module"));
  restore_reloaded_data(fit.setup, fit.data, fit.progress);
  const auto samples = fit.progress.samples;
  adopt_data_place(fit.setup, fit.data, fit.progress, shared.get<StateTree>("data"), checkpoint.folder());
  // Micro-batches that run again log their metrics again.
  if (fit.progress.samples != samples) own.set("train_log", fit.log.train.state());
  load_model(fit, checkpoint, shared.get<StateTree>("model"));
  fit.setup.module->load_state(own.get<StateTree>("module"));
  const OptimizerSettings given(fit.setup);
  load_callbacks(fit, own.get<StateTree>("callbacks"));
  for (const auto& callback : fit.setup.callbacks) callback->on_load_checkpoint(fit.context, shared);
  load_optimizers(fit, shared);
  load_precision(fit, shared);
  given.tell(fit.setup);
  say_where_from(fit, checkpoint);
  fit.checkpoints.resume_point = {
      .loops = loops_state(fit), .own = std::move(own), .world_size = checkpoint.info().world_size};
}

void load_resume_point(const FitParts& fit) {
  const auto [loops, own, world_size] = std::exchange(fit.checkpoints.resume_point, std::nullopt).value();
  load_buffers(fit, own.get<StateTree>("buffers"));
  fit.log.board.callback = metrics_of(own.get<StateTree>("callback_metrics"));
  fit.log.board.progress_bar = metrics_of(own.get<StateTree>("progress_bar_metrics"));
  load_validations(fit.log.board, own);
  // Hooks of this run may have asked for it, too.
  if (own.get<bool>("should_stop")) fit.stop.requested = fit.stop.saved = true;
  if (own.get<bool>("stop_agreed") || !fit.stop.callbacks.empty()) fit.stop.agreed = true;
  const auto& gradients = own.get<StateTree>("gradients");
  if (world_size != fit.setup.communicator().size()) {
    if (!fit.setup.module->automatic_optimization() && !gradients.empty())
      warn_of_dropped_gradients(fit, "they are of " + std::to_string(world_size) + " ranks");
    return;
  }
  fit.setup.strategy->load_state(own.get<StateTree>("strategy"));
  if (has_gradients_to_keep(fit)) load_gradients(fit, gradients);
  fit.log.train.load_state(own.get<StateTree>("train_log"));
  fit.log.evaluation.load_state(own.get<StateTree>("evaluation_log"));
  load_random_state(own.get<StateTree>("random"), fit.setup.strategy->root_device());
}

// What this Trainer's callbacks know of a fit of its own is newer.
bool load_for_evaluation(const FitParts& fit, const Checkpoint& checkpoint) {
  load_model(fit, checkpoint, checkpoint.entry("model"));
  const auto own = own_of(fit.setup, checkpoint);
  if (!own.contains("module")) return false;  // weights only
  const auto& module = own.get<StateTree>("module");
  if (!module.empty()) fit.setup.module->load_state(module);
  const auto& callbacks = own.get<StateTree>("callbacks");
  for_each_callback(fit, [&](const std::string& key, Callback& callback) {
    if (fit.progress.samples == 0 && callbacks.contains(key))
      callback.load_state(callbacks.get<StateTree>(key));
  });
  if (!fit.data.module || !own.contains("data_module")) return false;
  const auto& data = own.get<StateTree>("data_module");
  if (!data.empty()) fit.data.module->load_state(data);
  return !data.empty();
}

}  // namespace lockstep::detail
