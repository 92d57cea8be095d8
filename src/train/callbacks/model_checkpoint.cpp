#include <lockstep/train/callbacks/model_checkpoint.h>

#include <algorithm>
#include <cmath>

#include <lockstep/base/log.h>
#include <lockstep/strategy/strategy.h>
#include <lockstep/torch.h>
#include <lockstep/train/trainer_options.h>

#include "train/agreed_clock.h"
#include "train/callbacks/checkpoint_name.h"
#include "train/callbacks/monitored_metric.h"
#include "train/callbacks/refuse.h"

namespace lockstep {

namespace fs = std::filesystem;

namespace {

constexpr const char* kDefaultName = "{epoch}-{step}";
constexpr const char* kExtension = ".ckpt";

constexpr detail::Refusal refuse{"ModelCheckpoint"};

void check(const ModelCheckpointOptions& options) {
  const int intervals = options.every_n_train_steps.has_value() + options.train_time_interval.has_value() +
                        options.every_n_epochs.has_value();
  if (intervals > 1)
    refuse("intervals", "one of every_n_train_steps, train_time_interval and every_n_epochs",
           std::to_string(intervals) + " of them");
  if (options.every_n_train_steps.value_or(0) < 0)
    refuse("every_n_train_steps", ">= 0", std::to_string(*options.every_n_train_steps));
  if (options.every_n_epochs.value_or(0) < 0)
    refuse("every_n_epochs", ">= 0", std::to_string(*options.every_n_epochs));
  if (options.save_top_k < -1) refuse("save_top_k", ">= -1", std::to_string(options.save_top_k));
  if (options.monitor.empty() && options.save_top_k > 1)
    refuse("save_top_k without monitor", "-1, 0 or 1", std::to_string(options.save_top_k));
}

std::string text_of(const std::optional<std::int64_t>& number) {
  return number ? std::to_string(*number) : "None";
}

}  // namespace

ModelCheckpoint::ModelCheckpoint(ModelCheckpointOptions options) : options_(std::move(options)) {
  check(options_);
  (void)format_checkpoint_name({}, 0, 0);
  if (!options_.every_n_train_steps && !options_.train_time_interval && !options_.every_n_epochs)
    options_.every_n_epochs = 1;
}

ModelCheckpoint::~ModelCheckpoint() = default;

std::string ModelCheckpoint::format_checkpoint_name(const Metrics& metrics, std::int64_t epoch,
                                                    std::int64_t step) const {
  const auto value_of = [&](std::string_view name) -> detail::NamedValue {
    if (name == "epoch") return {static_cast<double>(epoch), true};
    if (name == "step") return {static_cast<double>(step), true};
    const auto found = metrics.find(name);
    return {found == metrics.end() ? 0 : found->second, false};
  };
  const std::string text = options_.filename.empty() ? kDefaultName : options_.filename;
  return detail::checkpoint_name(text, options_.auto_insert_metric_name, value_of) + kExtension;
}

std::string ModelCheckpoint::state_key() const {
  const auto interval = options_.train_time_interval
                            ? std::to_string(options_.train_time_interval->count()) + "ms"
                            : std::string("None");
  return "ModelCheckpoint{'monitor': '" + options_.monitor + "', 'mode': '" +
         (options_.mode == MonitorMode::kMin ? "min" : "max") +
         "', 'every_n_train_steps': " + text_of(options_.every_n_train_steps) +
         ", 'every_n_epochs': " + text_of(options_.every_n_epochs) + ", 'train_time_interval': " + interval +
         "}";
}

void ModelCheckpoint::setup(TrainContext& context) {
  dirpath_ = options_.dirpath.empty() ? context.run_dir() / "checkpoints" : options_.dirpath;
  if (context.stage() == Stage::kFit) last_global_step_saved_ = 0;
}

void ModelCheckpoint::on_fit_start(TrainContext& context) {
  if (options_.save_on_exception) context.prepare_save_after_failure();
}

void ModelCheckpoint::on_train_start(TrainContext&) {
  if (options_.train_time_interval)
    clock_ = std::make_unique<detail::AgreedClock>(*options_.train_time_interval);
}

void ModelCheckpoint::on_train_batch_end(StepContext& step, const TrainOutput&) {
  bool due = clock_ && clock_->is_due(step.strategy().communicator());
  if (due) clock_->restart();
  const auto every = options_.every_n_train_steps.value_or(0);
  due = due || (every > 0 && step.global_step() % every == 0);
  if (!due || should_skip(step)) return;
  // A validation that comes right after this batch has the value that the name promises.
  if (is_monitor_stale(step)) {
    waits_for_validation_ = true;
  } else {
    save(step);
  }
}

void ModelCheckpoint::on_train_epoch_end(TrainContext& context) {
  if (!saves_on_train_epoch_end(context) || !epoch_is_due(context) || should_skip(context)) return;
  save(context);
}

void ModelCheckpoint::on_validation_end(TrainContext& context) {
  const bool waited = std::exchange(waits_for_validation_, false);
  if (should_skip(context)) return;
  if (waited || (!saves_on_train_epoch_end(context) && epoch_is_due(context))) save(context);
}

// Nobody looks for a free name: other ranks may not be here to be told of it.
void ModelCheckpoint::on_exception(TrainContext& context, const std::exception&) {
  if (!options_.save_on_exception || should_skip(context)) return;
  const auto name =
      format_checkpoint_name(context.callback_metrics(), context.current_epoch(), context.global_step());
  context.save_after_failure(dirpath_ / name, {.weights_only = options_.save_weights_only});
}

bool ModelCheckpoint::should_skip(const TrainContext& context) const {
  return context.options().fast_dev_run || context.stage() != Stage::kFit ||
         context.global_step() == last_global_step_saved_;
}

bool ModelCheckpoint::epoch_is_due(const TrainContext& context) const {
  const auto every = options_.every_n_epochs.value_or(0);
  return every > 0 && (context.current_epoch() + 1) % every == 0;
}

// Lightning's choice where nothing is said.
bool ModelCheckpoint::saves_on_train_epoch_end(const TrainContext& context) const {
  if (options_.save_on_train_epoch_end) return *options_.save_on_train_epoch_end;
  const auto& trainer = context.options();
  if (trainer.val_check_interval.is_time() || trainer.check_val_every_n_epoch != 1) return false;
  return !context.has_validation() || trainer.val_check_interval.is_whole_epoch();
}

bool ModelCheckpoint::is_monitor_stale(const StepContext& step) const {
  if (options_.monitor.empty() || !step.has_validation()) return false;
  return step.will_validate() || !step.callback_metrics().contains(options_.monitor);
}

void ModelCheckpoint::save(TrainContext& context) {
  if (options_.save_top_k != 0) {
    if (options_.monitor.empty()) {
      save_latest(context);
    } else if (const auto value = monitored(context)) {
      save_if_among_best(context, *value);
    }
  }
  save_last(context);
}

void ModelCheckpoint::save_latest(TrainContext& context) {
  const auto replaced = options_.save_top_k == 1 ? best_model_path_ : fs::path();
  best_model_path_ = free_path(context, replaced);
  write(context, best_model_path_, replaced);
}

void ModelCheckpoint::save_if_among_best(TrainContext& context, double value) {
  if (std::isnan(value))
    value = std::numeric_limits<double>::infinity() * (options_.mode == MonitorMode::kMin ? 1 : -1);
  const bool is_full = options_.save_top_k > 0 && std::ssize(best_k_models_) >= options_.save_top_k;
  fs::path replaced;
  if (is_full) {
    replaced = worst();
    if (!is_better(value, best_k_models_.at(replaced))) {
      if (options_.verbose)
        context.print("Epoch " + std::to_string(context.current_epoch()) + ", global step " +
                      std::to_string(context.global_step()) + ": '" + options_.monitor + "' was not in top " +
                      std::to_string(options_.save_top_k));
      return;
    }
    best_k_models_.erase(replaced);
  }
  const auto path = free_path(context, replaced);
  best_k_models_[path] = value;
  const auto best = std::ranges::max_element(best_k_models_, [&](const auto& one, const auto& other) {
    return is_better(other.second, one.second);
  });
  best_model_path_ = best->first;
  best_model_score_ = best->second;
  write(context, path, replaced);
}

void ModelCheckpoint::save_last(TrainContext& context) {
  if (options_.save_last == SaveLast::kNo) return;
  const auto path = dirpath_ / (std::string("last") + kExtension);
  if (options_.save_last == SaveLast::kLink) {
    last_model_path_ = path;  // made with the checkpoint it points to
    return;
  }
  if (latest_.empty() || last_global_step_saved_ != context.global_step()) return;
  last_model_path_ = path;
  context.save_checkpoint(path, {.weights_only = options_.save_weights_only});
}

// State comes first: the checkpoint holds its own place among the best.
void ModelCheckpoint::write(TrainContext& context, const fs::path& path, const fs::path& replaced) {
  last_global_step_saved_ = context.global_step();
  latest_ = path;
  const bool is_inside = replaced.parent_path() == dirpath_;  // others are not ours to remove
  const bool links = options_.save_last == SaveLast::kLink;
  if (options_.verbose) context.print("saving " + path.string());
  context.save_checkpoint(path, {.weights_only = options_.save_weights_only,
                                 .replaced = is_inside && replaced != path ? replaced : fs::path(),
                                 .link = links ? dirpath_ / (std::string("last") + kExtension) : fs::path()});
}

// Rank 0 looks at the folder, for all.
fs::path ModelCheckpoint::free_path(const TrainContext& context, const fs::path& replaced) const {
  std::string path;
  if (context.is_global_zero()) {
    const fs::path wanted = dirpath_ / format_checkpoint_name(context.callback_metrics(),
                                                              context.current_epoch(), context.global_step());
    fs::path free = wanted;
    for (int version = 1; options_.enable_version_counter && free != replaced && fs::exists(free);
         ++version) {
      free = wanted;
      free.replace_filename(wanted.stem().string() + "-v" + std::to_string(version) + kExtension);
    }
    path = free.string();
  }
  return context.strategy().communicator().broadcast_bytes(path, 0);
}

std::optional<double> ModelCheckpoint::monitored(const TrainContext& context) const {
  auto value = detail::monitored_metric(context, options_.monitor);
  if (value) return value;
  detail::refuse_or_warn_of_missing("ModelCheckpoint", context, options_.monitor, /*strict=*/true);
  return std::nullopt;
}

bool ModelCheckpoint::is_better(double value, double than) const {
  return options_.mode == MonitorMode::kMin ? value < than : value > than;
}

fs::path ModelCheckpoint::worst() const {
  const auto worst = std::ranges::max_element(best_k_models_, [&](const auto& one, const auto& other) {
    return is_better(one.second, other.second);
  });
  return worst->first;
}

StateTree ModelCheckpoint::state() const {
  StateTree state;
  state.set("monitor", options_.monitor);
  state.set("dirpath", dirpath_.string());
  state.set("best_model_path", best_model_path_.string());
  if (best_model_score_) state.set("best_model_score", *best_model_score_);
  state.set("last_model_path", last_model_path_.string());
  state.set("waits_for_validation", waits_for_validation_);
  StateTree models;
  std::int64_t number = 0;
  for (const auto& [path, value] : best_k_models_) {
    StateTree model;
    model.set("path", path.string());
    model.set("value", value);
    models.set(std::to_string(number++), std::move(model));
  }
  state.set("best_k_models", std::move(models));
  return state;
}

void ModelCheckpoint::load_state(const StateTree& state) {
  best_model_path_ = state.get<std::string>("best_model_path");
  if (state.contains("best_model_score")) best_model_score_ = state.get<double>("best_model_score");
  if (state.get<std::string>("dirpath") != dirpath_.string()) {
    log_warning("ModelCheckpoint: the checkpoint's were in " + state.get<std::string>("dirpath") +
                ", this run's are in " + dirpath_.string() + ": of those only best_model_path is known");
    return;
  }
  last_model_path_ = state.get<std::string>("last_model_path");
  waits_for_validation_ = state.get<bool>("waits_for_validation");
  best_k_models_.clear();
  const auto models = state.get<StateTree>("best_k_models");
  for (const auto& entry : models.entries()) {
    const auto model = models.get<StateTree>(entry.name);
    best_k_models_[model.get<std::string>("path")] = model.get<double>("value");
  }
}

}  // namespace lockstep
