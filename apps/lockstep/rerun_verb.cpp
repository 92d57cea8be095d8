#include "rerun_verb.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <string_view>
#include <vector>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/base/shell_word.h>
#include <lockstep/base/version.h>
#include <lockstep/formats/checkpoint_tools.h>
#include <lockstep/formats/checksum.h>
#include <lockstep/formats/mapped_file.h>
#include <nlohmann/json.hpp>

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using lockstep::ConfigError;
using Words = std::vector<std::string>;

constexpr int kSignalled = 128;

[[noreturn]] void refuse_rerun(const std::string& what, const std::string& expected, const std::string& got,
                               const std::string& hint = {}) {
  throw ConfigError("rerun", {.what = what, .expected = expected, .got = got, .where = {}, .hint = hint});
}

[[noreturn]] void refuse_gone(const std::string& what, const fs::path& path) {
  refuse_rerun(what + " of the run is gone", path.string(), "no such file or folder",
               "put it back where it was to repeat the run");
}

// What a run was started as.
struct Record {
  fs::path folder;
  std::string number;  // ".N" of a record that was put aside: run.N.json, config.N.yaml, summary.N.json
  std::string stage;
  std::string version, checksum, commit, started_by, save_weights;
  fs::path executable, working_directory;
  Words command;
  int trainer = 1, world_size = 1, num_nodes = 1;
  bool has_config = false;
  std::map<std::string, std::string> environment;
  Words heeded;                    // what the names of variables begin with that a run follows from
  std::vector<std::string> seeds;  // of the ranks' random generators
  Json files, resumed_from;
};

// A file of the run's record, such as run.json.
fs::path file_of(const Record& record, const std::string& stem, const std::string& extension) {
  return record.folder / (stem + record.number + extension);
}

// ".N" of run.N.json; empty for run.json and folders.
std::string number_in(const fs::path& run) {
  const auto name = run.filename().string();
  constexpr std::string_view kStem = "run", kExtension = ".json";
  if (!name.starts_with(kStem) || !name.ends_with(kExtension) || fs::is_directory(run)) return {};
  return name.substr(kStem.size(), name.size() - kStem.size() - kExtension.size());
}

Record read_record(const std::string& run) {
  const bool is_file = fs::is_regular_file(run);
  const auto file = is_file ? fs::path(run) : fs::path(run) / "run.json";
  if (!fs::exists(file))
    refuse_rerun("\"" + run + "\" is no run directory", "a folder with run.json, which a Trainer has written",
                 fs::is_directory(run) ? "a folder without it" : "no such folder");
  try {
    const auto json = Json::parse(std::ifstream(file));
    const auto &program = json.at("program"), &ranks = json.at("ranks");
    return {.folder = fs::absolute(file).parent_path(),
            .number = number_in(run),
            .stage = json.value("stage", "fit"),
            .version = json.at("versions").at("lockstep"),
            .checksum = program.at("xxh3_128").is_null() ? "" : program.at("xxh3_128").get<std::string>(),
            .commit = json.at("commit"),
            .started_by = ranks.at("started_by"),
            .save_weights = json.at("save_weights"),
            .executable = program.at("executable").get<std::string>(),
            .working_directory = program.at("working_directory").get<std::string>(),
            .command = program.at("command"),
            .trainer = json.at("trainer"),
            .world_size = ranks.at("world_size"),
            .num_nodes = ranks.at("num_nodes"),
            .has_config = json.at("has_config"),
            .environment = json.at("environment"),
            .heeded = json.at("heeded"),
            .seeds = json.at("seeds"),
            .files = json.at("files"),
            .resumed_from = json.at("resumed_from")};
  } catch (const Json::exception& error) {
    refuse_rerun(file.string() + " is malformed", "what a Trainer has written", error.what());
  }
}

void warn_of_other_build(const Record& record) {
  const auto now = lockstep::checksum(lockstep::MappedFile(record.executable).bytes());
  if (!record.checksum.empty() && now != record.checksum)
    lockstep::log_warning(record.executable.string() + " is another build than the one that has run" +
                          (record.commit.empty() ? "" : " (at commit " + record.commit + ")") +
                          ": the weights may differ");
  if (record.version != lockstep::kVersion)
    lockstep::log_warning("the run is of lockstep " + record.version + ", and this is " + lockstep::kVersion);
}

std::int64_t modified_ns(const fs::path& file) {
  const auto time = fs::last_write_time(file).time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

void check_files(const Record& record) {
  for (const auto& [key, file] : record.files.items()) {
    const fs::path path = file.at("path").get<std::string>();
    if (!fs::exists(path)) refuse_gone(key, path);
    if (fs::file_size(path) != file.at("bytes") || modified_ns(path) != file.at("modified_ns"))
      lockstep::log_warning(path.string() + " (" + key + ") has changed since: the weights may differ");
  }
}

// Its manifest has a checksum of its own, with those of all bytes in it.
void check_resumed_from(const Record& record) {
  if (record.resumed_from.is_null()) return;
  const fs::path path = record.resumed_from.at("path").get<std::string>();
  if (!fs::exists(path)) refuse_gone("the first checkpoint", path);
  std::string now;
  std::ifstream file(path / "manifest.xxh128");
  std::getline(file, now);
  if (now == record.resumed_from.at("manifest")) return;
  refuse_rerun("the first checkpoint of the run is another one now",
               path.string() + " as it was when the run went on from it", "a later checkpoint in its place",
               "repeat the run from its beginning, or keep such checkpoints under names of their own");
}

void check(const Record& record) {
  if (record.trainer != 1)
    refuse_rerun("the run is that of a program's Trainer number " + std::to_string(record.trainer),
                 "the run directory of its first Trainer, with which the others run again",
                 record.folder.string());
  if (!fs::exists(record.executable)) refuse_gone("the program", record.executable);
  if (!fs::is_directory(record.working_directory))
    refuse_gone("the working directory", record.working_directory);
  const auto config = file_of(record, "config", ".yaml");
  if (record.has_config && !fs::exists(config)) refuse_gone(config.filename(), config);
  check_files(record);
  check_resumed_from(record);
  warn_of_other_build(record);
}

// Without the flag and its value, in one word or two.
void drop_flag(Words& words, std::string_view flag) {
  for (std::size_t i = 0; i < words.size();) {
    const bool is_alone = words[i] == flag;
    if (!is_alone && !words[i].starts_with(std::string(flag) + "=")) {
      ++i;
      continue;
    }
    const auto first = words.begin() + static_cast<std::ptrdiff_t>(i);
    words.erase(first, first + (is_alone && i + 1 < words.size() ? 2 : 1));
  }
}

// Without flags of callbacks, with their values: some add to what a file says.
void drop_callbacks(Words& words) {
  constexpr std::string_view kFlag = "--trainer.callbacks";
  for (std::size_t i = 0; i < words.size();) {
    if (!words[i].starts_with(kFlag)) {
      ++i;
      continue;
    }
    const bool has_value_behind =
        words[i].find('=') == std::string::npos && i + 1 < words.size() && !words[i + 1].starts_with("--");
    const auto first = words.begin() + static_cast<std::ptrdiff_t>(i);
    words.erase(first, first + (has_value_behind ? 2 : 1));
  }
}

// The saved configuration holds what files and flags have said; the verb stays where it was.
Words arguments_of(const Record& record, const fs::path& run_dir) {
  Words words(record.command.begin() + std::min<std::ptrdiff_t>(1, std::ssize(record.command)),
              record.command.end());
  if (!record.has_config) return words;
  for (const char* flag : {"-c", "--config", "--run_dir", "--ckpt_path", "--resume", "--save_weights"})
    drop_flag(words, flag);
  drop_callbacks(words);
  const auto add = [&](const char* flag, const std::string& value) {
    words.insert(words.end(), {flag, value});
  };
  add("-c", file_of(record, "config", ".yaml").string());
  add("--run_dir", run_dir.string());
  add("--resume", "never");
  add("--ckpt_path", record.resumed_from.is_null() ? "" : record.resumed_from.at("path").get<std::string>());
  if (!record.save_weights.empty())
    add("--save_weights", (run_dir / fs::path(record.save_weights).filename()).string());
  return words;
}

Words command_of(const Record& record, const fs::path& run_dir) {
  Words command{record.executable.string()};
  if (record.started_by != "the program" && record.world_size > 1)
    command = {fs::read_symlink("/proc/self/exe").string(), "run", "--nproc-per-node",
               std::to_string(record.world_size), record.executable.string()};
  for (auto& word : arguments_of(record, run_dir)) command.push_back(std::move(word));
  return command;
}

std::string in_words(const Words& words) {
  std::string text;
  for (const auto& word : words) {
    text += (text.empty() ? "" : " ") + lockstep::shell_word(word);
  }
  return text;
}

fs::path new_run_dir(const RerunFlags& flags, const Record& record) {
  if (!flags.run_dir.empty()) return fs::absolute(flags.run_dir);
  auto base = record.folder.lexically_normal();
  if (!base.has_filename()) base = base.parent_path();
  for (int number = 1;; ++number) {
    fs::path folder = base.string() + "-rerun" + (number == 1 ? "" : "-" + std::to_string(number));
    if (!fs::exists(folder)) return folder;
  }
}

// Variables that the run would heed are as they were; others stay.
void restore_environment(const Record& record, const fs::path& run_dir) {
  for (const auto& beginning : record.heeded) {
    for (const auto& [name, value] : lockstep::env::with_prefix(beginning)) lockstep::env::unset(name);
  }
  for (const auto& [name, value] : record.environment) {
    const bool is_part_of_config = record.has_config && name == "LOCKSTEP_TRAINER_CALLBACKS";
    if (!is_part_of_config) lockstep::env::set(name, value);
  }
  if (!record.has_config) lockstep::env::set("LOCKSTEP_RUN_DIR", run_dir.string());
  std::string seeds;
  for (const auto& seed : record.seeds) seeds += (seeds.empty() ? "" : ",") + seed;
  lockstep::env::set("LOCKSTEP_RERUN_SEEDS", seeds);
}

int execute(const Record& record, const Words& command, const fs::path& run_dir) {
  std::vector<char*> words;
  for (const auto& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const auto child = ::fork();
  if (child < 0) throw lockstep::Error("rerun", {.what = "no process", .got = std::strerror(errno)});
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    restore_environment(record, run_dir);
    if (::chdir(record.working_directory.c_str()) == 0) ::execv(words.front(), words.data());
    std::cerr << "lockstep: cannot execute " << command.front() << ": " << std::strerror(errno) << "\n";
    ::_exit(kSignalled - 1);
  }
  (void)std::signal(SIGINT, SIG_IGN);  // the program's to heed, which the terminal tells as well
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : kSignalled + WTERMSIG(status);
}

Json metrics_in(const fs::path& summary) {
  const auto json = Json::parse(std::ifstream(summary), nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json.value("metrics", Json::object()) : Json::object();
}

// Compares the metrics of two runs that have trained nothing.
int compare_metrics(const Record& record, const fs::path& run_dir) {
  const auto before = metrics_in(file_of(record, "summary", ".json"));
  const auto after = metrics_in(run_dir / "summary.json");
  const auto in = "repeated in " + run_dir.string() + ": ";
  if (before.empty() && after.empty()) {
    std::cout << in << "there are no metrics to compare\n";
    return 0;
  }
  auto names = before;
  names.update(after);
  for (const auto& [name, ignored] : names.items()) {
    const auto first = before.value(name, Json()), second = after.value(name, Json());
    if (first != second) std::cout << "  " << name << ": " << first << ", then " << second << "\n";
  }
  std::cout << in << "the metrics " << (before == after ? "are the same" : "differ") << "\n";
  return before == after ? 0 : 1;
}

// Compares the models in the checkpoints at the end of both runs.
int compare_weights(const Record& record, const fs::path& run_dir) {
  const auto last = fs::path("checkpoints") / "last.ckpt";
  const auto before = record.folder / last, after = run_dir / last;
  if (!fs::exists(before) || !fs::exists(after)) {
    std::cout << "repeated in " << run_dir.string() << "; there are no two checkpoints to compare\n";
    return 0;
  }
  auto lines = lockstep::compare_checkpoints(before, after);
  std::erase_if(lines, [](const auto& line) { return line.substr(2, 6) != "model/"; });
  for (const auto& line : lines) std::cout << line << "\n";
  std::cout << "repeated in " << run_dir.string() << ": the weights "
            << (lines.empty() ? "are the same, bit for bit" : "differ") << "\n";
  return lines.empty() ? 0 : 1;
}

}  // namespace

CLI::App* add_rerun(CLI::App& app, RerunFlags& flags) {
  auto* verb = app.add_subcommand(
      "rerun", "Repeat a run from its run directory, and compare the weights, or a test's metrics");
  verb->add_option("RUN_DIR", flags.run,
                   "The run's folder, runs/NAME/version_N, or a record in it that was put aside, run.N.json")
      ->required();
  verb->add_option("--run-dir", flags.run_dir, "The folder of the repetition (default: RUN_DIR-rerun)");
  verb->add_flag("--print", flags.print, "Print the command, and run nothing");
  return verb;
}

int rerun(const RerunFlags& flags) {
  const auto record = read_record(flags.run);
  check(record);
  const auto run_dir = new_run_dir(flags, record);
  if (fs::exists(run_dir) && fs::equivalent(run_dir, record.folder))
    refuse_rerun("--run-dir", "a folder other than that of the run", run_dir.string());
  const auto command = command_of(record, run_dir);
  if (flags.print) {
    std::cout << "cd '" << record.working_directory.string() << "' && " << in_words(command) << "\n";
    return 0;
  }
  if (record.num_nodes > 1)
    refuse_rerun("the run was one of " + std::to_string(record.num_nodes) + " nodes", "one node",
                 "started by " + record.started_by,
                 "start what --print shows on each of them, as it was started");
  lockstep::create_folders(run_dir);
  if (const int code = execute(record, command, run_dir); code != 0) return code;
  return record.stage == "fit" ? compare_weights(record, run_dir) : compare_metrics(record, run_dir);
}
