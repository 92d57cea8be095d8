#include "loggers/mlflow_logger.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <random>
#include <type_traits>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/base/option_codec.h>
#include <lockstep/base/option_type.h>
#include <lockstep/formats/checksum.h>
#include <lockstep/loggers/logger.h>
#include <lockstep/loggers/loggers.h>

#include "formats/file_text.h"
#include "loggers/log_records.h"
#include "loggers/logger_files.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

// The meta.yaml of a folder; null where it is missing or incomplete.
YAML::Node meta_of(const fs::path& folder) try {
  return YAML::LoadFile((folder / "meta.yaml").string());
} catch (const YAML::Exception&) {
  return {};
}

std::string text_of(const YAML::Node& meta, const char* key) {
  return meta.IsMap() && meta[key] && meta[key].IsScalar() ? meta[key].Scalar() : "";
}

std::string file_uri(const fs::path& path) {
  constexpr std::string_view kKept = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/";
  std::string uri = "file://";
  for (const char letter : fs::absolute(path).lexically_normal().string()) {
    uri += kKept.find(letter) != std::string_view::npos
               ? std::string(1, letter)
               : fmt::format("%{:02X}", static_cast<unsigned char>(letter));
  }
  return uri;
}

void write_experiment(const fs::path& folder, const std::string& id, const std::string& name) {
  const auto now = mlflow_time();
  write_file_atomically(
      folder / "meta.yaml",
      fmt::format("artifact_location: {}\ncreation_time: {}\nexperiment_id: '{}'\nlast_update_time: {}\n"
                  "lifecycle_stage: active\nname: {}\n",
                  yaml_scalar(file_uri(folder), true), now, id, now, yaml_scalar(name, true)));
}

std::optional<std::string> find_experiment(const fs::path& store, const std::string& name) {
  for (const auto& entry : fs::directory_iterator(store)) {
    const auto id = entry.path().filename().string();
    if (!id.starts_with('.') && text_of(meta_of(entry.path()), "name") == name) return id;
  }
  return {};
}

// The id of an experiment is made of its name, so that processes that create it at the same time use the same
// id.
std::string experiment_id(const std::string& name, int attempt) {
  const auto text = name + "\n" + std::to_string(attempt);
  const auto digits = checksum(std::as_bytes(std::span(text)));
  return std::to_string(std::stoull(digits.substr(0, 15), nullptr, 16));
}

void make_store(const fs::path& store) {
  if (fs::exists(store)) return;
  make_folder(store / "0");  // MLflow expects it to exist
  write_experiment(store / "0", "0", "Default");
}

std::string new_run_id() {
  std::random_device device;
  std::string id;
  for (int part = 0; part < 4; ++part) id += fmt::format("{:08x}", device());
  return id;
}

void write_tag(const MlflowRun& run, const std::string& name, const std::string& value) {
  AppendFile file(run.folder / "tags" / mlflow_key(name));
  file.append(as_utf8(value));
  file.flush();
}

MlflowRun new_run(const MlflowOptions& options) {
  const auto experiment = mlflow_experiment(options.save_dir, options.experiment_name);
  const auto id = new_run_id();
  return {.folder = options.save_dir / experiment / id,
          .experiment_id = experiment,
          .run_id = id,
          .run_name = options.run_name.empty() ? "run-" + id.substr(0, 8) : options.run_name,
          .start_time_ms = mlflow_time()};
}

// Creates a run. meta.yaml is written last, since MLflow shows the run when it exists.
void make_run(const MlflowRun& run, const MlflowOptions& options) try {
  for (const char* part : {"artifacts", "metrics", "params", "tags"}) make_folder(run.folder / part);
  write_tag(run, "mlflow.runName", run.run_name);
  write_tag(run, "mlflow.source.type", "LOCAL");
  for (const auto& [name, value] : options.tags) write_tag(run, name, value);
  write_mlflow_status(run, MlflowStatus::kRunning);
} catch (...) {
  std::error_code ignored;
  fs::remove_all(run.folder, ignored);
  throw;
}

std::optional<MlflowRun> find_run(const fs::path& store, const std::string& run_id) {
  if (!fs::exists(store)) return {};
  for (const auto& entry : fs::directory_iterator(store)) {
    const auto folder = entry.path() / run_id;
    const auto meta = meta_of(folder);
    if (text_of(meta, "run_id") != run_id) continue;
    return MlflowRun{.folder = folder,
                     .experiment_id = entry.path().filename().string(),
                     .run_id = run_id,
                     .run_name = text_of(meta, "run_name"),
                     .start_time_ms = meta["start_time"].as<std::int64_t>(mlflow_time())};
  }
  return {};
}

MlflowRun existing_run(const MlflowOptions& options) {
  if (auto run = find_run(options.save_dir, options.run_id)) return *run;
  throw ConfigError("loggers", {.what = "run_id " + options.run_id,
                                .expected = "a run in " + options.save_dir.string(),
                                .got = "none of that id"});
}

}  // namespace

std::int64_t mlflow_time() {
  using std::chrono::duration_cast, std::chrono::milliseconds, std::chrono::system_clock;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

std::string mlflow_experiment(const fs::path& store, const std::string& name) {
  make_store(store);
  if (const auto found = find_experiment(store, name)) return *found;
  for (int attempt = 0;; ++attempt) {
    const auto id = experiment_id(name, attempt);
    const auto folder = store / id;
    if (fs::exists(store / ".trash" / id)) continue;  // deleted, and may be restored
    make_folder(folder);
    const auto present = text_of(meta_of(folder), "name");
    if (present.empty()) write_experiment(folder, id, name);
    if (present.empty() || present == name) return id;
  }
}

MlflowRun open_mlflow_run(const MlflowOptions& options) {
  if (options.run_id.empty()) {
    const auto run = new_run(options);
    make_run(run, options);
    return run;
  }
  const auto run = existing_run(options);
  write_mlflow_status(run, MlflowStatus::kRunning);
  return run;
}

void write_mlflow_status(const MlflowRun& run, MlflowStatus status, std::optional<std::int64_t> end_time_ms) {
  write_file_atomically(
      run.folder / "meta.yaml",
      fmt::format(
          "artifact_uri: {}\ndeleted_time: null\nend_time: {}\nentry_point_name: ''\n"
          "experiment_id: '{}'\nlifecycle_stage: active\nrun_id: '{}'\nrun_name: {}\nsource_name: ''\n"
          "source_type: 4\nsource_version: ''\nstart_time: {}\nstatus: {}\ntags: []\nuser_id: {}\n",
          yaml_scalar(file_uri(run.folder / "artifacts"), true),
          end_time_ms ? std::to_string(*end_time_ms) : "null", run.experiment_id, run.run_id,
          yaml_scalar(run.run_name, true), run.start_time_ms, static_cast<int>(status),
          yaml_scalar(env::get("USER").value_or("unknown"), true)));
}

std::string mlflow_key(const std::string& name) {
  constexpr std::string_view kRead = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_/. -";
  constexpr std::size_t kLongest = 250;
  std::string kept;
  for (const char letter : name) {
    if (kRead.find(letter) != std::string_view::npos) kept += letter;
  }
  fs::path key;
  for (const auto& path : fs::path(kept.substr(0, kLongest)).relative_path()) {
    auto part = path.string();
    // MLflow takes a name that begins so for a path out of its folder, and shows no run any more.
    if (key.empty() && part.starts_with("..")) part.erase(0, part.find_first_not_of('.'));
    if (!part.empty() && part != "." && part != "..") key /= part;
  }
  return key.empty() ? "unnamed" : key.string();
}

}  // namespace lockstep::detail

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
  v.field("run_id", o.run_id, "Id of a run to continue; empty: a new run");
  v.field("prefix", o.prefix, "Prefix of metric names, followed by a dash");
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

  // A key that is not used by another name. A name that is a file cannot be a folder, too.
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
    // A file that cannot be written must not prevent the others from being written.
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
