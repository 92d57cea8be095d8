#include <lockstep/loggers/mlflow_logger.h>

#include <algorithm>
#include <map>
#include <optional>
#include <type_traits>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/log.h>
#include <lockstep/base/option_type.h>
#include <lockstep/loggers/flush_schedule.h>

#include "loggers/append_file.h"
#include "loggers/metric_row.h"
#include "loggers/mlflow_store.h"
#include "loggers/version_folder.h"
#include "loggers/write_or_warn.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using detail::AppendFile;

// As Python writes it, so that runs of both compare.
std::string python_text(const HyperParameter& param) {
  return std::visit(
      [](const auto& value) -> std::string {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, bool>) return value ? "True" : "False";
        if constexpr (std::is_same_v<T, std::int64_t>) return std::to_string(value);
        if constexpr (std::is_same_v<T, double>) return OptionType<double>::print(value);
        if constexpr (std::is_same_v<T, std::string>) return detail::as_utf8(value);
      },
      param);
}

}  // namespace

void describe(OptionVisitor& v, MlflowOptions& o) {
  v.field("save_dir", o.save_dir, "Folder of the store");
  v.field("experiment_name", o.experiment_name, "Name of the experiment; made when there is none");
  v.field("run_name", o.run_name, "Name of the run; empty: made of its id");
  v.field("run_id", o.run_id, "Id of a run to go on with; empty: a new one");
  v.field("prefix", o.prefix, "Put before every metric's name, with a dash");
  v.field("flush_every_n_rows", o.flush_every_n_rows, "Rows that are written at once", at_least(1));
}

// Files of a run are known by `metrics/NAME` and `params/NAME`. Lines wait here until the run is there.
struct MlflowLogger::State {
  explicit State(MlflowOptions given) : options(std::move(given)), schedule(options.flush_every_n_rows) {}

  const detail::MlflowRun& opened() {
    if (!run) run = detail::open_mlflow_run(options);
    return *run;
  }

  std::string key_of(const std::string& folder, const std::string& name) {
    const auto known = keys.find(folder + name);
    if (known != keys.end()) return known->second;
    const auto key = free_key(folder, detail::mlflow_key(name));
    keys.emplace(folder + name, key);
    if (key != folder + name) {
      warn_once("mlflow: " + folder + name,
                "MLflow reads names of letters, digits and _/. - only, which are files: '" +
                    detail::as_utf8(name) + "' is written as '" + key.substr(folder.size()) + "'");
    }
    return key;
  }

  // Names that would be one are told apart; what is a file cannot be a folder, too.
  std::string free_key(const std::string& folder, std::string key) const {
    const auto is_free = [&](const std::string& file) {
      return std::ranges::none_of(keys, [&](const auto& other) {
        const auto& taken = other.second;
        return taken == file || taken.starts_with(file + "/") || file.starts_with(taken + "/");
      });
    };
    if (is_free(folder + key)) return folder + key;
    std::ranges::replace(key, '/', '_');
    auto free = folder + key;
    for (int number = 2; !is_free(free); ++number) free = folder + key + "-" + std::to_string(number);
    return free;
  }

  void write() {
    for (auto& [name, text] : waiting) {
      if (text.empty()) {  // a parameter's value
        const auto file = opened().folder / name;
        detail::write_or_warn(file, [&] {
          detail::make_folder(file.parent_path());
          write_file_atomically(file, "");
        });
        continue;
      }
      const auto existing =
          name.starts_with("metrics") ? AppendFile::Existing::kContinued : AppendFile::Existing::kReplaced;
      files.try_emplace(name, opened().folder / name, existing).first->second.append(text);
    }
    waiting.clear();
    // One that cannot be written must not keep the others from it.
    for (auto& [name, file] : files) detail::write_or_warn(run->folder, [&file] { file.flush(); });
  }

  MlflowOptions options;
  FlushSchedule schedule;
  std::optional<detail::MlflowRun> run = {};
  std::map<std::string, std::string> keys = {};  // of the names so far, both with their folder
  std::map<std::string, std::string> waiting = {};
  std::map<std::string, AppendFile> files = {};
};

MlflowLogger::MlflowLogger(MlflowOptions options) : state_(std::make_unique<State>(std::move(options))) {}
MlflowLogger::~MlflowLogger() = default;

void MlflowLogger::log_metrics(std::span<const Metric> metrics, std::int64_t epoch, std::int64_t step) {
  if (metrics.empty()) return;
  const auto time = std::to_string(detail::mlflow_time());
  const auto row = detail::row_of(metrics, epoch, step);
  for (const auto& [name, value] : row.prefixed(state_->options.prefix)) {
    state_->waiting[state_->key_of("metrics/", name)] +=
        time + " " + OptionType<double>::print(value) + " " + std::to_string(row.whole_step) + "\n";
  }
  if (state_->schedule.add_row()) flush();
}

void MlflowLogger::log_hyperparams(const HyperParameters& params) {
  for (const auto& [name, value] : params) {
    const auto file = state_->key_of("params/", name);
    state_->files.erase(file);  // a file of one value
    state_->waiting[file] = python_text(value);
  }
  flush();
}

void MlflowLogger::flush() {
  state_->schedule.flushed();
  detail::write_or_warn(state_->options.save_dir, [&] { state_->write(); });
}

void MlflowLogger::finalize(const std::string& status) {
  flush();
  if (!state_->run) return;
  const auto end = status == "failed" ? detail::MlflowStatus::kFailed : detail::MlflowStatus::kFinished;
  detail::write_or_warn(state_->run->folder,
                        [&] { detail::write_mlflow_status(*state_->run, end, detail::mlflow_time()); });
}

std::string MlflowLogger::name() const { return state_->opened().experiment_id; }
std::string MlflowLogger::version() const { return state_->opened().run_id; }
fs::path MlflowLogger::save_dir() const { return state_->options.save_dir; }
fs::path MlflowLogger::log_dir() const { return state_->opened().folder; }

}  // namespace lockstep
