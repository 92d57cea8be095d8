// The options in effect: plugins and those options that decide about others are applied to the Trainer's
// options.
#include "train/run_lifecycle.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include <ATen/Context.h>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/train/callbacks/failure_checkpoints.h>
#include <lockstep/train/callbacks/model_checkpoint.h>
#include <lockstep/train/callbacks/model_summary.h>
#include <lockstep/train/callbacks/monitors.h>
#include <lockstep/train/callbacks/progress_bar.h>
#include <lockstep/train/callbacks/timer.h>
#include <lockstep/train/hooks.h>
#include <lockstep/train/named_callbacks.h>

#include "base/format.h"
#include "train/logging/class_name.h"

namespace lockstep::detail {
namespace {

void check(TrainerOptions& options) {
  for (const auto& callback : options.callbacks) {
    if (!callback)
      throw ConfigError("train", {.what = "callbacks", .expected = "callbacks", .got = "a null pointer"});
  }
  OptionTree tree;
  tree.add("trainer", options);
  tree.add("", options.run);
  tree.validate();
  for (const auto& item : options.logger.items()) {
    const auto* name = std::get_if<std::string>(&item);
    if (name == nullptr || *name != "own") continue;
    throw ConfigError(
        "train",
        {.what = "logger", .expected = "loggers made by the program in place of this word", .got = *name});
  }
}

void check_validation(const TrainerOptions& options) {
  if (options.check_val_every_n_epoch || options.val_check_interval.is_time()) return;
  if (!std::holds_alternative<double>(options.val_check_interval.value())) return;
  throw ConfigError("train",
                    {.what = "val_check_interval",
                     .expected = "a number of batches or a time, since check_val_every_n_epoch is null",
                     .got = options.val_check_interval.print(),
                     .hint = "a fraction is one of an epoch"});
}

void refuse_in_barebones(std::string option, std::string got) {
  throw ConfigError("train", {.what = "barebones = true with " + option,
                              .expected = option + " as it is by default",
                              .got = std::move(got),
                              .hint = "barebones measures the loop and nothing else"});
}

void apply_barebones(TrainerOptions& options, RunNotes& notes) {
  if (options.fast_dev_run) refuse_in_barebones("fast_dev_run", options.fast_dev_run.print());
  if (options.detect_anomaly) refuse_in_barebones("detect_anomaly", "true");
  if (options.profiler) refuse_in_barebones("profiler", options.profiler.print());
  if (options.local_checkpoint.every_n_train_steps > 0)
    refuse_in_barebones("local_checkpoint.every_n_train_steps",
                        std::to_string(options.local_checkpoint.every_n_train_steps));
  options.logger = false;
  options.enable_checkpointing = false;
  options.enable_progress_bar = false;
  options.enable_model_summary = false;
  options.log_every_n_steps = 0;
  options.num_sanity_val_steps = 0;
  auto warning = std::string(
      "barebones = true: no logger, checkpoint, progress bar, summary or sanity check; log() does nothing");
  if (const auto names = leave_out_reports(options.callbacks); !names.empty())
    warning += "; callbacks that are left out: " + lockstep::joined(names);
  notes.warnings.push_back(std::move(warning));
}

void apply_fast_dev_run(TrainerOptions& options, RunNotes& notes) {
  const int batches = options.fast_dev_run.batches();
  for (auto* limit : {&options.limit_train_batches, &options.limit_val_batches, &options.limit_test_batches,
                      &options.limit_predict_batches})
    *limit = batches;
  options.max_steps = batches;
  options.max_epochs = 1;
  options.num_sanity_val_steps = 0;
  options.val_check_interval = 1.0;
  options.check_val_every_n_epoch = 1;
  options.logger = false;
  options.enable_checkpointing = false;
  notes.infos.push_back("fast_dev_run: " + std::to_string(batches) +
                        " batch(es) of every stage, no logger, no checkpoint");
}

void apply_overfit(TrainerOptions& options) {
  options.limit_train_batches = options.overfit_batches;
  options.limit_val_batches = options.overfit_batches;
}

// Lightning's rule for runs without any limit.
void resolve_limits(TrainerOptions& options, RunNotes& notes) {
  if (!options.min_epochs) options.min_epochs = options.min_steps > 0 ? 1 : 0;
  if (options.max_epochs) return;
  if (options.max_steps == -1 && !options.max_time) {
    notes.warnings.push_back(
        "max_epochs is not set: stopping after 1000 epochs; set max_epochs to -1 for no limit");
    options.max_epochs = 1000;
  } else {
    options.max_epochs = -1;
  }
}

bool is_model_checkpoint(const std::shared_ptr<Callback>& callback) {
  return dynamic_cast<const ModelCheckpoint*>(callback.get()) != nullptr;
}

// A Trainer without a ModelCheckpoint gets one that keeps the checkpoint of the latest epoch.
void add_model_checkpoint(TrainerOptions& options) {
  const bool is_there = std::ranges::any_of(options.callbacks, is_model_checkpoint);
  if (options.enable_checkpointing && !is_there)
    options.callbacks.push_back(std::make_shared<ModelCheckpoint>());
  if (options.enable_checkpointing || !is_there) return;
  throw ConfigError("train",
                    {.what = "enable_checkpointing = false with a ModelCheckpoint among the callbacks",
                     .expected = "one without the other",
                     .got = "both"});
}

// Two LocalCheckpoints would remove each other's checkpoints.
void add_local_checkpoint(TrainerOptions& options) {
  if (options.local_checkpoint.every_n_train_steps > 0)
    options.callbacks.push_back(std::make_shared<LocalCheckpoint>(options.local_checkpoint));
  const auto found = std::ranges::count_if(options.callbacks, [](const auto& callback) {
    return dynamic_cast<const LocalCheckpoint*>(callback.get()) != nullptr;
  });
  if (found <= 1) return;
  throw ConfigError("train", {.what = "LocalCheckpoint among the callbacks",
                              .expected = "one, or local_checkpoint.every_n_train_steps",
                              .got = std::to_string(found)});
}

constexpr const char* kKinds[] = {"a ClusterEnvironment", "a Precision", "a CheckpointIO"};

[[noreturn]] void refuse(const Plugin& plugin, const std::string& also, std::string hint) {
  throw ConfigError("train", {.what = std::string("plugins has ") + kKinds[plugin.index()] + ", and " + also,
                              .expected = "one of them",
                              .got = "both",
                              .hint = std::move(hint)});
}

void check_kinds(const std::vector<Plugin>& plugins) {
  std::set<std::size_t> kinds;
  for (const auto& plugin : plugins) {
    if (std::visit([](const auto& pointer) { return pointer == nullptr; }, plugin))
      throw ConfigError("train", {.what = "plugins", .expected = "plugins", .got = "a null pointer"});
    if (!kinds.insert(plugin.index()).second) refuse(plugin, "another one", "there can be one of each kind");
  }
}

// Moves a ClusterEnvironment and a Precision from the plugins to the options that name them.
void apply_plugins(TrainerOptions& options) {
  check_kinds(options.plugins);
  for (const auto& plugin : options.plugins) {
    if (const auto* environment = std::get_if<std::shared_ptr<ClusterEnvironment>>(&plugin)) {
      if (options.cluster_environment) refuse(plugin, "cluster_environment names another one", "");
      options.cluster_environment = *environment;
    } else if (const auto* precision = std::get_if<std::shared_ptr<Precision>>(&plugin)) {
      if (!std::holds_alternative<Fp32>(options.precision))
        refuse(plugin, "precision names another one", "leave --trainer.precision as it is by default");
      options.precision = *precision;
    } else if (options.async_checkpoint) {
      refuse(plugin, "async_checkpoint writes checkpoints itself", "");
    }
  }
}

// Whether the program has a callback of this kind. At most one is allowed where `flag` is on, and none where
// it is off.
template <class Kind>
bool brings(const std::vector<std::shared_ptr<Callback>>& callbacks, const char* kind, const char* flag,
            bool is_on) {
  const auto found = std::ranges::count_if(
      callbacks, [](const auto& callback) { return dynamic_cast<const Kind*>(callback.get()) != nullptr; });
  if (found <= (is_on ? 1 : 0)) return found > 0;
  throw ConfigError("train", {.what = std::string(kind) + " among the callbacks",
                              .expected = is_on ? "one" : std::string("none with ") + flag + " = false",
                              .got = std::to_string(found)});
}

template <class... Kinds>
bool is_one_of(const Callback& callback) {
  return ((dynamic_cast<const Kinds*>(&callback) != nullptr) || ...);
}

}  // namespace

std::vector<std::string> leave_out_reports(std::vector<std::shared_ptr<Callback>>& callbacks) {
  std::vector<std::string> names;
  std::erase_if(callbacks, [&](const auto& callback) {
    if (!is_one_of<ModelCheckpoint, LocalCheckpoint, ProgressBar, ModelSummary, LearningRateMonitor,
                   DeviceStatsMonitor, ThroughputMonitor>(*callback))
      return false;
    names.push_back(class_name(*callback));
    return true;
  });
  return names;
}

OwnReports own_reports(const std::vector<std::shared_ptr<Callback>>& callbacks,
                       const TrainerOptions& options) {
  return {
      brings<ProgressBar>(callbacks, "progress bars", "enable_progress_bar", options.enable_progress_bar),
      brings<ModelSummary>(callbacks, "ModelSummary", "enable_model_summary", options.enable_model_summary)};
}

TrainerOptions effective(TrainerOptions options, RunNotes& notes) {
  check(options);
  std::ranges::move(make_callbacks(options.named_callbacks), std::back_inserter(options.callbacks));
  options.named_callbacks.clear();
  apply_plugins(options);
  check_validation(options);
  if (options.barebones) apply_barebones(options, notes);
  add_model_checkpoint(options);
  add_local_checkpoint(options);
  own_reports(options.callbacks, options);
  if (!options.overfit_batches.is_zero()) apply_overfit(options);
  if (options.fast_dev_run) apply_fast_dev_run(options, notes);
  resolve_limits(options, notes);
  if (options.max_time)
    options.callbacks.push_back(std::make_shared<Timer>(TimerOptions{.duration = *options.max_time}));
  return options;
}

void apply_determinism(const TrainerOptions& options, RunNotes& notes) {
  auto& context = at::globalContext();
  const bool deterministic = options.deterministic != Deterministic::kFalse;
  if (deterministic) {
    context.setDeterministicAlgorithms(true, /*warn_only=*/options.deterministic == Deterministic::kWarn);
    // cuBLAS reads this variable when it is first used.
    if (!env::get("CUBLAS_WORKSPACE_CONFIG")) env::set("CUBLAS_WORKSPACE_CONFIG", ":4096:8");
    if (options.benchmark.value_or(false))
      notes.warnings.push_back(
          "benchmark = true with deterministic: cuDNN may choose other algorithms in each run");
  }
  if (options.benchmark || deterministic) context.setBenchmarkCuDNN(options.benchmark.value_or(false));
  if (options.matmul_precision)
    context.setFloat32MatmulPrecision(OptionType<MatmulPrecision>::print(*options.matmul_precision));
}

}  // namespace lockstep::detail
