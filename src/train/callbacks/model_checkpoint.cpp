#include <lockstep/train/callbacks/model_checkpoint.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <lockstep/base/log.h>
#include <lockstep/strategy/strategy.h>
#include <lockstep/torch.h>
#include <lockstep/train/trainer_options.h>

#include "train/callbacks/checkpoint_rules.h"
#include "train/callbacks/monitored_metric.h"
#include "train/callbacks/refuse.h"
#include "train/stopping/agreement_cadence.h"

namespace lockstep {

namespace fs = std::filesystem;

namespace {

constexpr detail::Refusal refuse_checkpointing{"ModelCheckpoint"};

void check(const ModelCheckpointOptions& options) {
  const int intervals = options.every_n_train_steps.has_value() + options.train_time_interval.has_value() +
                        options.every_n_epochs.has_value();
  if (intervals > 1)
    refuse_checkpointing("intervals", "one of every_n_train_steps, train_time_interval and every_n_epochs",
                         std::to_string(intervals) + " of them");
  if (options.every_n_train_steps.value_or(0) < 0)
    refuse_checkpointing("every_n_train_steps", ">= 0", std::to_string(*options.every_n_train_steps));
  if (options.every_n_epochs.value_or(0) < 0)
    refuse_checkpointing("every_n_epochs", ">= 0", std::to_string(*options.every_n_epochs));
  if (options.save_top_k < -1)
    refuse_checkpointing("save_top_k", ">= -1", std::to_string(options.save_top_k));
  if (options.monitor.empty() && options.save_top_k > 1)
    refuse_checkpointing("save_top_k without monitor", "-1, 0 or 1", std::to_string(options.save_top_k));
}

}  // namespace

std::span<const OptionName<SaveLast>> option_names(SaveLast) {
  static constexpr OptionName<SaveLast> kNames[] = {
      {"false", SaveLast::kFalse}, {"true", SaveLast::kTrue}, {"link", SaveLast::kLink}};
  return kNames;
}

ModelCheckpoint::ModelCheckpoint(ModelCheckpointOptions options) : options_(std::move(options)) {
  check(options_);
  (void)format_checkpoint_name({}, 0, 0);
  if (!options_.every_n_train_steps && !options_.train_time_interval && !options_.every_n_epochs)
    options_.every_n_epochs = 1;
}

ModelCheckpoint::~ModelCheckpoint() = default;

void ModelCheckpoint::setup(TrainContext& context) {
  dirpath_ = detail::checkpoint_folder(options_, context);
  if (context.stage() != Stage::kFit) return;
  refuse_name_of_last(context);
  // A new fit starts without checkpoints; the state of a resumed one is loaded later.
  kept_.clear();
  best_model_path_.clear();
  best_model_score_.reset();
  last_model_path_.clear();
  latest_.clear();
  last_global_step_saved_ = saves_ = 0;
  last_due_.reset();
  waits_for_validation_ = has_warned_of_missing_ = has_warned_of_stale_ = false;
}

// A name that equals last.ckpt would overwrite one of the best checkpoints.
void ModelCheckpoint::refuse_name_of_last(const TrainContext& context) const {
  if (options_.save_top_k == 0 || context.options().fast_dev_run) return;
  const auto path = (dirpath_ / format_checkpoint_name({}, 0, 0)).lexically_normal();
  const auto of_trainer = (context.run_dir() / "checkpoints" / last_path().filename()).lexically_normal();
  const bool is_own_last = options_.save_last != SaveLast::kFalse && path == last_path().lexically_normal();
  if (!is_own_last && fs::absolute(path) != fs::absolute(of_trainer)) return;
  refuse_checkpointing("filename", "another name: the end of fit is saved as " + of_trainer.string(),
                       "\"" + options_.filename + "\"",
                       "choose one such as {epoch}-{val_loss}, or another dirpath");
}

void ModelCheckpoint::on_fit_start(TrainContext& context) {
  if (options_.save_on_exception) context.prepare_save_after_failure();
  forget_missing(context);
}

void ModelCheckpoint::on_train_start(TrainContext& context) {
  last_due_ = detail::first_due(last_due_, context.global_step(), options_.every_n_train_steps.value_or(0));
  if (options_.train_time_interval)
    clock_ = std::make_unique<detail::AgreedClock>(*options_.train_time_interval);
}

void ModelCheckpoint::on_train_batch_end(StepContext& step, const TrainOutput&) {
  bool due = clock_ && clock_->is_due(step.strategy().communicator());
  if (due) clock_->restart();
  due = steps_are_due(step) || due;
  if (!due || should_skip(step)) return;
  step.sync_step_metrics();
  // Saves after the validation that follows this batch, which has the value that the name contains.
  if (waits_for_monitor(step)) {
    waits_for_validation_ = true;
  } else {
    save(step);
  }
}

bool ModelCheckpoint::steps_are_due(const TrainContext& context) {
  const auto every = options_.every_n_train_steps.value_or(0);
  return every > 0 && detail::take_due(*last_due_, context.global_step(), every);
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

// Saves at the end of a fit that has saved nothing else.
void ModelCheckpoint::on_train_end(TrainContext& context) {
  if (options_.save_last != SaveLast::kFalse && latest_.empty() && !should_skip(context)) write_last(context);
}

// Does not look for a free name, which other ranks could not be told after a failure.
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

// The default interval, as in Lightning.
bool ModelCheckpoint::saves_on_train_epoch_end(const TrainContext& context) const {
  if (options_.save_on_train_epoch_end) return *options_.save_on_train_epoch_end;
  const auto& trainer = context.options();
  if (trainer.val_check_interval.is_time() || trainer.check_val_every_n_epoch != 1) return false;
  return !context.has_validation() || trainer.val_check_interval.is_whole_epoch();
}

bool ModelCheckpoint::waits_for_monitor(const StepContext& step) const {
  if (options_.monitor.empty() || !step.has_validation()) return false;
  return step.will_validate() || !detail::monitored_metric(step, options_.monitor);
}

void ModelCheckpoint::save(TrainContext& context) {
  if (options_.save_top_k != 0) {
    if (options_.monitor.empty()) {
      save_latest(context);
    } else if (const auto found = monitored(context)) {
      save_if_among_best(context, *found);
    }
  }
  save_last(context);
}

void ModelCheckpoint::save_latest(TrainContext& context) {
  const auto former = best_model_path_;
  const Saved replaced{.path = options_.save_top_k == 1 ? former : fs::path()};
  best_model_path_ = free_path(context, replaced.path);
  write(context, best_model_path_, replaced, former);
}

void ModelCheckpoint::save_if_among_best(TrainContext& context, Saved candidate) {
  if (std::isnan(candidate.value))
    candidate.value = std::numeric_limits<double>::infinity() * (options_.mode == MonitorMode::kMin ? 1 : -1);
  candidate.number = saves_;
  const auto place = place_for(context, candidate);
  if (!place) {
    if (options_.verbose)
      context.print("Epoch " + std::to_string(context.current_epoch()) + ", global step " +
                    std::to_string(context.global_step()) + ": '" + options_.monitor + "' was not in top " +
                    std::to_string(options_.save_top_k));
    return;
  }
  ++saves_;
  const auto known = std::ranges::find(kept_, *place, &Saved::path);
  const auto replaced = known != kept_.end() ? *known : Saved{.path = *place};
  drop(replaced.path);
  candidate.path = free_path(context, *place, candidate.is_measured);
  keep(candidate);
  const auto former = best_model_path_;
  choose_best();
  write(context, candidate.path, replaced, former);
}

// The checkpoint that `candidate` replaces among the best: empty while there is room, none where it is not
// among them. Rank 0 decides for all, since it may know earlier of checkpoints that could not be written in
// the background.
std::optional<fs::path> ModelCheckpoint::place_for(const TrainContext& context,
                                                   const Saved& candidate) const {
  std::string word;
  if (context.is_global_zero()) {
    const bool is_full = options_.save_top_k > 0 && std::ssize(kept_) >= options_.save_top_k;
    if (!is_full || is_better(candidate, worst())) word = "+" + (is_full ? worst().path.string() : "");
  }
  word = context.strategy().communicator().broadcast_bytes(word, 0);
  return word.empty() ? std::nullopt : std::optional<fs::path>(word.substr(1));
}

void ModelCheckpoint::keep(const Saved& saved) {
  drop(saved.path);
  kept_.insert(std::ranges::upper_bound(kept_, saved.number, {}, &Saved::number), saved);
}

bool ModelCheckpoint::drop(const fs::path& path) {
  return std::erase_if(kept_, [&](const Saved& saved) { return saved.path == path; }) > 0;
}

void ModelCheckpoint::choose_best() {
  best_model_path_.clear();
  best_model_score_.reset();
  if (kept_.empty()) return;
  const auto& best = *std::ranges::min_element(
      kept_, [&](const auto& one, const auto& other) { return is_better(one, other); });
  best_model_path_ = best.path;
  if (best.is_measured) best_model_score_ = best.value;
}

void ModelCheckpoint::save_last(TrainContext& context) {
  if (latest_.empty() || last_global_step_saved_ != context.global_step()) return;
  if (options_.save_last == SaveLast::kTrue) write_last(context);
  if (options_.save_last == SaveLast::kLink) last_model_path_ = last_path();  // made with what it points to
}

fs::path ModelCheckpoint::last_path() const {
  return dirpath_ / std::string("last").append(detail::kCheckpointExtension);
}

void ModelCheckpoint::write_last(TrainContext& context) {
  const auto former = std::exchange(last_model_path_, last_path());
  context.save_checkpoint(last_model_path_, {.weights_only = options_.save_weights_only,
                                             .on_failure = [this, former] { last_model_path_ = former; }});
}

// The state is updated first, so that the checkpoint contains its own place among the best.
void ModelCheckpoint::write(TrainContext& context, const fs::path& path, const Saved& replaced,
                            const fs::path& former_best) {
  refuse_shared(context, path);
  last_global_step_saved_ = context.global_step();
  latest_ = path;
  const bool is_obsolete = replaced.path != path && is_inside_dirpath(replaced.path);
  const bool links = options_.save_last == SaveLast::kLink;
  if (options_.verbose) context.print("saving " + path.string());
  context.save_checkpoint(path, {.weights_only = options_.save_weights_only,
                                 .replaced = is_obsolete ? replaced.path : fs::path(),
                                 .link = links ? last_path() : fs::path(),
                                 .on_failure = [=, this] { forget(path, replaced, former_best); }});
}

// Checkpoints in other folders are never removed.
bool ModelCheckpoint::is_inside_dirpath(const fs::path& path) const {
  const auto relative = path.lexically_relative(dirpath_);
  return !relative.empty() && *relative.begin() != "..";
}

// A checkpoint that could not be written is not among the best, and the one that it was to replace still
// exists.
void ModelCheckpoint::forget(const fs::path& path, const Saved& replaced, const fs::path& former_best) {
  if (drop(path)) {
    if (!replaced.path.empty()) keep(replaced);
    choose_best();
  } else if (best_model_path_ == path) {
    best_model_path_ = former_best;
  }
  if (latest_ == path) latest_.clear();
}

// Two callbacks on one folder would remove each other's best checkpoints.
void ModelCheckpoint::refuse_shared(const TrainContext& context, const fs::path& path) const {
  if (!context.will_save(path)) return;
  refuse_checkpointing(
      "enable_version_counter = false",
      "names that differ, where several save at once: a filename or dirpath of its own for each",
      path.string() + " twice");
}

// Rank 0 reads the folder for all ranks.
fs::path ModelCheckpoint::free_path(const TrainContext& context, const fs::path& replaced,
                                    bool is_measured) const {
  std::string path;
  if (context.is_global_zero()) {
    auto metrics = context.callback_metrics();
    if (!is_measured) metrics[options_.monitor] = std::numeric_limits<double>::quiet_NaN();
    const fs::path wanted =
        dirpath_ / format_checkpoint_name(metrics, context.current_epoch(), context.global_step());
    fs::path free = wanted;
    const auto is_taken = [&] { return context.will_save(free) || (free != replaced && fs::exists(free)); };
    for (int version = 1; options_.enable_version_counter && is_taken(); ++version) {
      free = wanted;
      free.replace_filename(
          (wanted.stem().string() + "-v" + std::to_string(version)).append(detail::kCheckpointExtension));
    }
    path = free.string();
  }
  return context.strategy().communicator().broadcast_bytes(path, 0);
}

std::optional<ModelCheckpoint::Saved> ModelCheckpoint::monitored(const TrainContext& context) {
  const auto found = detail::monitored_metric(context, options_.monitor);
  if (!found) {
    detail::refuse_or_warn_of_missing("ModelCheckpoint", context, options_.monitor, /*strict=*/true,
                                      has_warned_of_missing_);
    return std::nullopt;
  }
  if (!found->is_stale(context)) return Saved{.value = found->value};
  if (!std::exchange(has_warned_of_stale_, true) && context.is_global_zero())
    log_warning("ModelCheckpoint: \"" + options_.monitor + "\" was not measured for the weights of step " +
                std::to_string(context.global_step()) + ", but for those of step " +
                std::to_string(found->measured.global_step) +
                ": such checkpoints rank behind those that were measured");
  return Saved{.value = std::numeric_limits<double>::quiet_NaN(), .is_measured = false};
}

// Among checkpoints without a metric the latest is the best.
bool ModelCheckpoint::is_better(const Saved& one, const Saved& than) const {
  if (one.is_measured != than.is_measured) return one.is_measured;
  if (!one.is_measured) return one.number > than.number;
  return options_.mode == MonitorMode::kMin ? one.value < than.value : one.value > than.value;
}

// Of equal checkpoints the first that was saved.
const ModelCheckpoint::Saved& ModelCheckpoint::worst() const {
  return *std::ranges::max_element(kept_,
                                   [&](const auto& one, const auto& other) { return is_better(one, other); });
}

void describe(OptionVisitor& v, ModelCheckpointOptions& o) {
  v.field("dirpath", o.dirpath, "Folder of the checkpoints; empty: checkpoints/ in the run's folder");
  v.field("filename", o.filename, "Their names, such as {epoch}-{val_loss:.2f}; empty: {epoch}-{step}");
  v.field("monitor", o.monitor, "Name of the logged metric; empty: the latest checkpoint is the best");
  v.field("verbose", o.verbose, "Say what is saved, and what is not");
  v.field("save_last", o.save_last, "Whether there is a last.ckpt; link: as a symbolic link to the latest");
  v.field("save_top_k", o.save_top_k, "Number of the best that are stored; -1: all, 0: none", at_least(-1));
  v.field("save_on_exception", o.save_on_exception, "Save what there is when a fit fails");
  v.field("save_weights_only", o.save_weights_only, "Leave out optimizer, schedule and loops");
  v.field("mode", o.mode, "Whether less (min) or more (max) of the metric is better");
  v.field("auto_insert_metric_name", o.auto_insert_metric_name, "{val_loss} becomes val_loss=0.12, not 0.12");
  v.field("every_n_train_steps", o.every_n_train_steps, "Optimizer steps between checkpoints; 0: never",
          at_least(0));
  v.field("train_time_interval", o.train_time_interval, "Time between checkpoints", at_least(0));
  v.field("every_n_epochs", o.every_n_epochs, "Epochs between checkpoints; 0: never", at_least(0));
  v.field("save_on_train_epoch_end", o.save_on_train_epoch_end,
          "Save at the end of the training epoch (true) or of the validation (false); null: as they come");
  v.field("enable_version_counter", o.enable_version_counter,
          "A name that is taken gets -v1, -v2, ...; false: the checkpoint is replaced");
}

}  // namespace lockstep
