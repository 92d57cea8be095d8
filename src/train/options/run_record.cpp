#include "train/options/run_record.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <nlohmann/json.hpp>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/base/options.h>
#include <lockstep/base/version.h>
#include <lockstep/formats/checksum.h>
#include <lockstep/formats/mapped_file.h>
#include <lockstep/torch.h>

#include "train/options/earlier_record.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kRecord = "run.json";

// Whose values a run follows from.
constexpr std::string_view kHeeded[] = {"LOCKSTEP_", "OMP_",  "MKL_",  "KMP_",  "CUDA_",   "CUBLAS_",
                                        "NCCL_",     "GLOO_", "TORCH", "ATEN_", "PYTORCH_"};
// Those by which launchers tell ranks their place.
constexpr std::string_view kOfLaunchers[] = {
    "LOCKSTEP_LAUNCH", "LOCKSTEP_LISTEN", "LOCKSTEP_STATUS",  "LOCKSTEP_STORE", "LOCKSTEP_JOB",
    "LOCKSTEP_START",  "LOCKSTEP_ROUND",  "LOCKSTEP_RUN_DIR", "LOCKSTEP_RERUN", "TORCHELASTIC_"};

std::string first_line(const fs::path& file) {
  std::string line;
  std::ifstream stream(file);
  std::getline(stream, line);
  return line;
}

// Of a work tree, which has a file in the place of the folder.
fs::path git_folder(const fs::path& git) {
  std::error_code ignored;
  if (!fs::is_regular_file(git, ignored)) return git;
  constexpr std::string_view kPointer = "gitdir: ";
  const auto line = first_line(git);
  return line.starts_with(kPointer) ? git.parent_path() / line.substr(kPointer.size()) : git;
}

std::string commit_of(const fs::path& git, const std::string& reference) {
  std::error_code ignored;
  auto common = git;
  if (fs::exists(git / "commondir", ignored)) common = git / first_line(git / "commondir");
  for (const auto& folder : {git, common}) {
    if (auto commit = first_line(folder / reference); !commit.empty()) return commit;
  }
  std::ifstream packed(common / "packed-refs");
  for (std::string line; std::getline(packed, line);) {
    if (line.ends_with(" " + reference)) return line.substr(0, line.find(' '));
  }
  return {};
}

// The commit that is checked out around `folder`; empty where it is in no repository. Whether files differ
// from it is not looked at.
std::string commit_around(fs::path folder) {
  constexpr std::string_view kReference = "ref: ";
  std::error_code ignored;
  for (; folder.has_relative_path(); folder = folder.parent_path()) {
    if (!fs::exists(folder / ".git", ignored)) continue;
    const auto git = git_folder(folder / ".git");
    const auto head = first_line(git / "HEAD");
    return head.starts_with(kReference) ? commit_of(git, head.substr(kReference.size())) : head;
  }
  return {};
}

std::vector<std::string> own_command() {
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

template <class Names>
bool begins_with_one_of(const std::string& name, const Names& beginnings) {
  return std::ranges::any_of(beginnings, [&](auto beginning) { return name.starts_with(beginning); });
}

std::map<std::string, std::string> heeded_variables() {
  std::map<std::string, std::string> variables;
  for (const auto& [name, value] : env::with_prefix("")) {
    if (begins_with_one_of(name, kHeeded) && !begins_with_one_of(name, kOfLaunchers))
      variables.emplace(name, value);
  }
  return variables;
}

Json program_record() {
  std::error_code ignored;
  const auto executable = fs::read_symlink("/proc/self/exe", ignored);
  Json record{{"executable", executable.string()}};
  try {
    record["xxh3_128"] = checksum(MappedFile("/proc/self/exe").bytes());
  } catch (const IoError&) {
    record["xxh3_128"] = nullptr;
  }
  record["command"] = own_command();
  record["working_directory"] = fs::current_path(ignored).string();
  return record;
}

// The files that values of the configuration name, by key.
Json files_of(const std::string& config_yaml) {
  Json files = Json::object();
  if (config_yaml.empty()) return files;
  for (const auto& [key, value, source] : read_yaml(config_yaml, "config.yaml")) {
    if (value.kind != OptionText::Kind::kScalar || value.text.empty() || key == "save_weights") continue;
    std::error_code failure;
    if (!fs::is_regular_file(value.text, failure)) continue;
    const auto modified = fs::last_write_time(value.text, failure).time_since_epoch();
    files[key] = {{"path", fs::absolute(value.text, failure).string()},
                  {"bytes", fs::file_size(value.text, failure)},
                  {"modified_ns", std::chrono::duration_cast<std::chrono::nanoseconds>(modified).count()}};
  }
  return files;
}

Json ranks_record(const RunSetup& setup) {
  const auto launched = env::get("LOCKSTEP_LAUNCHED").value_or("");
  const bool is_started = setup.environment->creates_processes_externally();
  const bool is_started_by_itself = launched == "fork" || launched == "reexec";
  return {{"world_size", setup.environment->world_size()},
          {"num_nodes", setup.shape.num_nodes},
          {"started_by", is_started && !is_started_by_itself ? setup.environment->name() : "the program"}};
}

void write(const RunSetup& setup, const Json& record) {
  write_file_atomically(setup.run_dir / kRecord,
                        record.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

Json resumed_from_record(const fs::path& checkpoint) {
  if (checkpoint.empty()) return nullptr;
  std::error_code ignored;
  return {{"path", fs::absolute(checkpoint, ignored).string()},
          {"manifest", first_line(checkpoint / "manifest.xxh128")}};
}

void write_run_record(const RunSetup& setup) {
  auto program = program_record();
  const auto beside = fs::path(program["executable"].get<std::string>()).parent_path();
  auto commit = commit_around(beside);
  if (commit.empty()) commit = commit_around(program["working_directory"].get<std::string>());
  Json record{{"versions", {{"lockstep", kVersion}, {"libtorch", TORCH_VERSION}}},
              {"commit", commit},
              {"program", std::move(program)},
              {"trainer", setup.facts.trainer},
              {"stage", stage_name(setup.stage)},
              {"ranks", ranks_record(setup)},
              {"seeds", setup.facts.seeds},
              {"environment", heeded_variables()},
              {"heeded", kHeeded},
              {"has_config", !setup.options.run.config_yaml.empty()},
              {"save_weights", setup.options.run.save_weights.string()},
              {"files", files_of(setup.options.run.config_yaml)},
              {"resumed_from", resumed_from_record(setup.facts.resumed_from)}};
  write(setup, record);
}

}  // namespace

void write_record(RunSetup& setup) {
  if (setup.facts.is_recorded || setup.run_dir.empty() || !setup.is_global_zero()) return;
  put_record_aside(setup.run_dir);
  const auto& config = setup.options.run.config_yaml;
  if (!config.empty()) write_file_atomically(setup.run_dir / "config.yaml", config);
  write_run_record(setup);
  setup.facts.is_recorded = true;
}

void begin_recorded_run(RunSetup& setup) {
  write_record(setup);
  setup.facts.has_begun = true;
}

std::string own_seed() {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return std::to_string(generator.current_seed());
}

void repeat_seed(int rank) {
  static pid_t process = 0;  // forked ranks have one each
  const auto seeds = env::get("LOCKSTEP_RERUN_SEEDS");
  if (!seeds || std::exchange(process, ::getpid()) == ::getpid()) return;
  std::istringstream list(*seeds);
  std::string seed;
  for (int i = 0; i <= rank && std::getline(list, seed, ',');) ++i;
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(std::stoull(seed));
}

void record_resumed_from(RunSetup& setup, const fs::path& checkpoint) {
  if (setup.facts.has_begun || !setup.is_global_zero()) return;
  setup.facts.resumed_from = checkpoint;
  if (!setup.facts.is_recorded) return;
  auto record = Json::parse(std::ifstream(setup.run_dir / kRecord), nullptr, /*allow_exceptions=*/false);
  if (!record.is_object()) return;
  record["resumed_from"] = resumed_from_record(checkpoint);
  write(setup, record);
}

}  // namespace lockstep::detail
