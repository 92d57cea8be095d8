// Names of checkpoints from ModelCheckpoint's template, and the state that it restores in a resumed run.
#include <lockstep/train/callbacks/model_checkpoint.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>
#include <vector>

#include <lockstep/base/log.h>
#include <lockstep/strategy/strategy.h>
#include <lockstep/train/trainer_options.h>

#include "base/job_log.h"
#include "formats/checkpoint_folders.h"
#include "train/callbacks/checkpoint_rules.h"
#include "train/options/run_setup.h"

namespace lockstep {

namespace fs = std::filesystem;

namespace {

constexpr const char* kDefaultName = "{epoch}-{step}";

std::string text_of(const std::optional<std::int64_t>& number) {
  return number ? std::to_string(*number) : "None";
}

bool is_there(const fs::path& checkpoint) {
  std::error_code ignored;
  return fs::exists(detail::place_of_checkpoint(checkpoint) / detail::kManifestName, ignored);
}

// Each of `known` as it would be called had `former` become `folder`; what lies elsewhere stays as it is.
std::vector<fs::path> in_folder(const std::vector<fs::path*>& known, const fs::path& former,
                                const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const auto* path : known) {
    const auto relative = path->lexically_relative(former);
    const bool is_inside = !relative.empty() && *relative.begin() != "..";
    paths.push_back(is_inside ? folder / relative : *path);
  }
  return paths;
}

// Whether `folder` is `former` by another path, or what has become of it: `former` is gone, and one of the
// checkpoints `here` is in `folder`.
bool is_folder_of(const fs::path& former, const fs::path& folder, const std::vector<fs::path>& here) {
  std::error_code ignored;
  if (former.lexically_normal() == folder.lexically_normal()) return true;
  if (fs::exists(former, ignored)) return fs::equivalent(former, folder, ignored);
  return std::ranges::any_of(here, [&](const auto& path) {
    return path.string().starts_with((folder / "").string()) && is_there(path);
  });
}

void warn_of_other_folder(const fs::path& former, const fs::path& folder) {
  detail::warn_once_of_job("ModelCheckpoint: " + former.string() + " " + folder.string(),
                           "ModelCheckpoint: the checkpoint's were in " + former.string() +
                               ", this run's are in " + folder.string() +
                               ": of those only best_model_path is known");
}

}  // namespace

std::string ModelCheckpoint::format_checkpoint_name(const Metrics& metrics, std::int64_t epoch,
                                                    std::int64_t step) const {
  const auto value_of = [&](std::string_view name) -> detail::NamedValue {
    const auto found = metrics.find(name);
    const bool is_logged = found != metrics.end();
    const bool is_count = name == "epoch" || name == "step";
    // In names epoch and step are whole numbers, as in Lightning, even if they were logged.
    if (is_logged)
      return {is_count ? std::trunc(found->second) : found->second, is_count && std::isfinite(found->second)};
    return {is_count ? static_cast<double>(name == "epoch" ? epoch : step) : 0, true};
  };
  const std::string text = options_.filename.empty() ? kDefaultName : options_.filename;
  return detail::checkpoint_name(text, options_.auto_insert_metric_name, value_of)
      .append(detail::kCheckpointExtension);
}

std::string ModelCheckpoint::state_key() const {
  const auto interval = options_.train_time_interval
                            ? std::to_string(options_.train_time_interval->count()) + "ms"
                            : std::string("None");
  return "ModelCheckpoint{'monitor': '" + options_.monitor + "', 'mode': '" +
         OptionType<MonitorMode>::print(options_.mode) +
         "', 'every_n_train_steps': " + text_of(options_.every_n_train_steps) +
         ", 'every_n_epochs': " + text_of(options_.every_n_epochs) + ", 'train_time_interval': " + interval +
         "}";
}

std::map<std::filesystem::path, double> ModelCheckpoint::best_k_models() const {
  std::map<std::filesystem::path, double> models;
  for (const auto& saved : kept_) models.emplace(saved.path, saved.value);
  return models;
}

StateTree ModelCheckpoint::state() const {
  StateTree state;
  state.set("monitor", options_.monitor);
  state.set("dirpath", dirpath_.string());
  state.set("best_model_path", best_model_path_.string());
  if (best_model_score_) state.set("best_model_score", *best_model_score_);
  state.set("last_model_path", last_model_path_.string());
  state.set("latest", latest_.string());
  state.set("last_global_step_saved", last_global_step_saved_);
  if (last_due_) state.set("last_due", *last_due_);
  state.set("waits_for_validation", waits_for_validation_);
  StateTree models;
  std::int64_t number = 0;
  for (const auto& saved : kept_) {
    StateTree model;
    model.set("path", saved.path.string());
    model.set("value", saved.value);
    model.set("is_measured", saved.is_measured);
    models.set(std::to_string(number++), std::move(model));
  }
  state.set("best_k_models", std::move(models));
  return state;
}

void ModelCheckpoint::load_state(const StateTree& state) {
  best_model_path_ = state.get<std::string>("best_model_path");
  if (state.contains("best_model_score")) best_model_score_ = state.get<double>("best_model_score");
  // Older checkpoints do not contain these.
  if (state.contains("last_global_step_saved"))
    last_global_step_saved_ = state.get<std::int64_t>("last_global_step_saved");
  if (state.contains("last_due")) last_due_ = state.get<std::int64_t>("last_due");
  waits_for_validation_ = state.get<bool>("waits_for_validation");
  last_model_path_ = state.get<std::string>("last_model_path");
  if (state.contains("latest")) latest_ = state.get<std::string>("latest");
  load_kept(state.get<StateTree>("best_k_models"));
  dirpath_ = detail::without_slash(state.get<std::string>("dirpath"));  // until on_fit_start
}

// Numbered in the order of saving.
void ModelCheckpoint::load_kept(const StateTree& models) {
  kept_.clear();
  saves_ = 0;
  for (auto name = std::string("0"); models.contains(name); name = std::to_string(saves_)) {
    const auto model = models.get<StateTree>(name);
    kept_.push_back({.path = model.get<std::string>("path"),
                     .value = model.get<double>("value"),
                     .is_measured = !model.contains("is_measured") || model.get<bool>("is_measured"),
                     .number = saves_++});
  }
}

// What a resumed run lists was written to the folder that dirpath_ still is. That may be this run's folder by
// another path, or one that was moved here since; of another run's only the best is known.
//
// A checkpoint in memory may list a file that was never written, so rank 0 checks them for all ranks. Files
// that a CheckpointIO keeps cannot be checked.
void ModelCheckpoint::forget_missing(const TrainContext& context) {
  const auto former = std::exchange(dirpath_, detail::checkpoint_folder(options_, context));
  std::vector<fs::path*> known{&best_model_path_, &last_model_path_, &latest_};
  for (auto& saved : kept_) known.push_back(&saved.path);
  if (former != dirpath_) {
    const auto here = in_folder(known, former, dirpath_);
    const bool follows = context.is_global_zero() && is_folder_of(former, dirpath_, here);
    if (context.strategy().communicator().broadcast_bytes(follows ? "1" : "", 0).empty()) {
      warn_of_other_folder(former, dirpath_);
      kept_.clear();
      last_model_path_.clear();
      latest_.clear();
      return;
    }
    for (std::size_t i = 0; i < known.size(); ++i) *known[i] = here[i];
  }
  if (detail::own_checkpoint_io(context.options())) return;
  std::string missing;
  for (const auto* path : known)
    if (context.is_global_zero() && is_inside_dirpath(*path) && !is_there(*path))
      missing += path->string() + '\n';
  std::istringstream lines(context.strategy().communicator().broadcast_bytes(missing, 0));
  for (std::string path; std::getline(lines, path);) {
    drop(path);
    if (latest_ == path) latest_.clear();
    if (last_model_path_ == path) last_model_path_.clear();
    if (best_model_path_ == path) choose_best();
  }
}

}  // namespace lockstep
