#include "loggers/mlflow_store.h"

#include <chrono>
#include <random>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/option_codec.h>
#include <lockstep/formats/checksum.h>

#include "loggers/append_file.h"
#include "loggers/metric_row.h"
#include "loggers/version_folder.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

// A meta.yaml that is absent, or not there as a whole yet, is null.
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

// Made of the name, so that processes which make the experiment at the same time make the same one.
std::string experiment_id(const std::string& name, int attempt) {
  const auto text = name + "\n" + std::to_string(attempt);
  const auto digits = checksum(std::as_bytes(std::span(text)));
  return std::to_string(std::stoull(digits.substr(0, 15), nullptr, 16));
}

void make_store(const fs::path& store) {
  if (fs::exists(store)) return;
  make_folder(store / "0");  // MLflow takes it for granted
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

// MLflow sees the run when meta.yaml is there, and that comes last.
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
    if (fs::exists(store / ".trash" / id)) continue;  // deleted, and may come back
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
  for (const auto& part : fs::path(kept.substr(0, kLongest)).relative_path()) {
    if (!part.empty() && part != "." && part != "..") key /= part;
  }
  return key.empty() ? "unnamed" : key.string();
}

}  // namespace lockstep::detail
