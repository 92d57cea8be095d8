// `lockstep run`: any program as the ranks of this node.
#include <lockstep/launch/launch.h>

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/launch/join.h>

#include "base/sockets.h"
#include "base/system.h"
#include "launch/command.h"
#include "launch/node_rounds.h"
#include "launch/orphans.h"
#include "launch/output_relay.h"
#include "launch/rank_observer.h"
#include "launch/rank_process.h"
#include "launch/remote_launcher.h"
#include "launch/supervisor.h"
#include "rendezvous/frames.h"
#include "rendezvous/store_server.h"

namespace lockstep::launch {
namespace {

// The error files (TORCHELASTIC_ERROR_FILE) of one attempt.
class ErrorFiles final : public RankObserver {
 public:
  /// `folder` has a folder for each local rank; empty: there are no files.
  explicit ErrorFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Its TORCHELASTIC_ERROR_FILE; empty: none.
  std::filesystem::path file_of(int local_rank) const;

  void add_to(std::vector<pollfd>&) const override {}
  void look() override {}
  std::string last_stderr_lines(int) const override { return {}; }
  std::string error_of(int local_rank) const override;

 private:
  std::filesystem::path folder_;
};

constexpr std::size_t kMaxErrorFileBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxShownLetters = 1'000;

// {"message": {"message": "TYPE: TEXT", ...}}, or {"message": "TYPE: TEXT"}.
// The error of the JSON `text` in one line, such as `ValueError: no such file`; empty where it is none.
std::string message_of_error_file(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("message")) return {};
  const auto& outer = json["message"];
  const auto& message = outer.is_object() && outer.contains("message") ? outer["message"] : outer;
  if (!message.is_string()) return {};
  auto line = message.get<std::string>();
  line = line.substr(0, std::min(line.find('\n'), kMaxShownLetters));
  for (char& letter : line)
    if (std::iscntrl(static_cast<unsigned char>(letter)) != 0) letter = '?';
  return line;
}

std::filesystem::path ErrorFiles::file_of(int local_rank) const {
  return folder_.empty() ? folder_ : folder_ / std::to_string(local_rank) / "error.json";
}

std::string ErrorFiles::error_of(int local_rank) const {
  if (folder_.empty()) return {};
  std::string text(kMaxErrorFileBytes, '\0');
  std::ifstream file(file_of(local_rank), std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return message_of_error_file(text);
}

}  // namespace
}  // namespace lockstep::launch

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> whole_command(const ProgramOptions& options) {
  auto command = options.command;
  if (command.empty())
    throw ConfigError("launch", {.what = "lockstep run", .expected = "a program to run", .got = "none"});
  if (options.no_python || !command.front().ends_with(".py")) return command;
  std::error_code failure;
  if (!fs::exists(command.front(), failure))
    launch::refuse_program(command.front(), failure ? failure.message() : "no such file");
  command.insert(command.begin(), {"python3", "-u"});
  return command;
}

// A free port for rank 0, which binds to it later.
int port_of_rank0(const LaunchOptions& options) {
  return options.main_port != 0 || options.node_rank != 0 ? options.main_port : reserved_port();
}

// Adds the variables of torchrun's workers to those of rank_process.h.
void add_elastic_variables(launch::RankPlan& plan, const ProgramOptions& options,
                           const launch::Attempt& attempt, const launch::ErrorFiles& errors) {
  plan.variables["TORCHELASTIC_RUN_ID"] = options.run_id;
  plan.variables["TORCHELASTIC_RESTART_COUNT"] = std::to_string(attempt.restarts);
  plan.variables["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(options.max_restarts);
  plan.variables["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  plan.variables["TORCHELASTIC_ERROR_FILE"] = errors.file_of(plan.local_rank).string();
  plan.variables["ROLE_NAME"] = options.output.role;
  plan.variables["ROLE_RANK"] = plan.variables["RANK"];
  plan.variables["ROLE_WORLD_SIZE"] = plan.variables["WORLD_SIZE"];
  if (attempt.first_role_rank >= 0) {
    plan.variables["ROLE_RANK"] = std::to_string(attempt.first_role_rank + plan.local_rank);
    plan.variables["ROLE_WORLD_SIZE"] = std::to_string(attempt.role_world_size);
  }
  plan.leads_session = true;
}

void bind(std::vector<launch::RankPlan>& plans, const BindingOptions& options) {
  if (options.kind == BindingKind::kNone) return;
  const auto bindings =
      plan_bindings(cores_of(usable_processor_numbers()), options, static_cast<int>(plans.size()));
  for (std::size_t i = 0; i < bindings.size(); ++i) {
    plans[i].processors = bindings[i].processors;
    if (!env::get("OMP_NUM_THREADS"))
      plans[i].variables["OMP_NUM_THREADS"] = std::to_string(bindings[i].threads);
  }
}

bool writes_files(const OutputOptions& output) {
  return !output.log_dir.empty() || !output.redirects.is_none() || !output.tee.is_none();
}

[[noreturn]] void refuse_folder(const std::string& flag, const fs::path& folder, const std::string& why) {
  throw ConfigError("launch", {.what = flag + " " + folder.string(),
                               .expected = "a folder for the output of ranks, in which files can be made",
                               .got = why});
}

fs::path temporary_folder() {
  std::error_code failure;
  auto folder = fs::temp_directory_path(failure);
  if (failure) refuse_folder("TMPDIR", env::get("TMPDIR").value_or("/tmp"), failure.message());
  return folder;
}

fs::path make_log_folder(const ProgramOptions& options) {
  if (!writes_files(options.output)) return {};
  const auto& chosen = options.output.log_dir;
  const auto flag = chosen.empty() ? "TMPDIR" : "--log-dir";
  const auto named = chosen.empty() ? temporary_folder() : chosen;
  std::error_code failure;
  const auto parent = fs::absolute(named, failure);  // for ranks that go to other folders, too
  if (failure) refuse_folder(flag, named, failure.message());
  try {
    create_folders(parent);
  } catch (const IoError& error) {
    refuse_folder(flag, parent, error.what());
  }
  auto job = options.run_id;
  std::ranges::replace(job, '/', '_');
  std::string name = (parent / (job + "_XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr) refuse_folder(flag, parent, std::strerror(errno));
  if (chosen.empty()) log_info("logs are in " + name);
  return name;
}

// The descriptors of the launcher: a measured number, and a few more for the rendezvous.
void require_descriptors(const ProgramOptions& options) {
  constexpr std::int64_t kAlways = 18, kOfRank = 6, kLogsOfRank = 2;
  const auto of_rank = kOfRank + (writes_files(options.output) ? kLogsOfRank : 0);
  const int ranks = options.launch.nprocs;
  require_open_files(kAlways + ranks * of_rank, "lockstep run with " + std::to_string(ranks) + " ranks");
}

// MKL, which LibTorch contains, ends a process that has none before its main().
void warn_of_no_working_directory() {
  std::error_code failure;
  const auto folder = fs::current_path(failure);
  if (failure)
    log_warning("the working directory cannot be used (" + failure.message() +
                "), it may have been removed: programs with LibTorch end at once; cd to another");
}

// The settings that all attempts share.
struct Program {
  std::vector<std::string> command;
  fs::path logs;
  std::chrono::system_clock::time_point began = std::chrono::system_clock::now();  // the clock of file times
};

// Adds the variables about earlier starts of the job.
void add_history(launch::RankPlan& plan, const Program& program, const launch::Attempt& attempt) {
  const std::chrono::nanoseconds began = program.began.time_since_epoch();
  plan.variables["LOCKSTEP_ROUND"] = std::to_string(attempt.number);
  plan.variables["LOCKSTEP_LAUNCHER_START_NS"] = std::to_string(began.count());
}

launch::LaunchEnd run_once(const ProgramOptions& options, const Program& program,
                           const launch::Attempt& attempt, const launch::LauncherEvents& events) {
  const auto& command = program.command;
  const auto folder =
      program.logs.empty() ? program.logs : program.logs / ("attempt_" + std::to_string(attempt.number));
  const auto& chosen = options.launch;
  launch::RunFiles files(chosen);
  launch::StatusTable statuses(chosen.nprocs);
  launch::OrphanReaper orphans;
  launch::ErrorFiles errors(folder);
  launch::OutputRelay relay(options.output, chosen.nprocs, folder);
  auto plans = launch::plan_ranks(chosen, {.launched = "run",
                                           .port = port_of_rank0(chosen),
                                           .status_fd = statuses.fd(),
                                           .first_rank = options.first_rank,
                                           .world_size = options.world_size});
  for (auto& plan : plans) {
    add_elastic_variables(plan, options, attempt, errors);
    add_history(plan, program, attempt);
    // Variables of a launcher around this one belong to another job.
    plan.unset.insert(plan.unset.end(), {"LOCKSTEP_JOB_TOKEN", "LOCKSTEP_STORE", "LOCKSTEP_STORE_SCOPE",
                                         "LOCKSTEP_STORE_TOKEN_FD"});
    if (attempt.store != nullptr) attempt.store->add_to(plan, attempt.number);
    if (!folder.empty()) create_folders(folder / std::to_string(plan.local_rank));
  }
  bind(plans, options.binding);
  const auto file = launch::find_program(command.front());
  const auto images = launch::make_images(plans, file, command);
  auto ranks = launch::start_ranks(plans, events.signals(), [&](const launch::RankPlan& plan) {
    relay.become_output_of(plan.local_rank);
    launch::heed_refused_writes();
    images[static_cast<std::size_t>(plan.local_rank)].execute();
    ::dprintf(STDERR_FILENO, "cannot execute %s: %s\n", file.c_str(), std::strerror(errno));
    ::_exit(launch::kExitCannotExecute);
  });
  relay.close_writers();
  orphans.leave_alone(ranks);
  auto observers = events.observers();
  observers.insert(observers.begin(), {&relay, &errors, &orphans});
  if (attempt.observer != nullptr) observers.push_back(attempt.observer);
  launch::Supervisor supervisor(chosen, files, statuses, events.signals(), std::move(ranks),
                                std::move(observers));
  const int exit_code = supervisor.run();
  if (exit_code == 0 && !supervisor.has_stopped_ranks()) relay.leave_reader_for_writers(events.signals());
  return {.exit_code = exit_code,
          .was_asked_to_stop = supervisor.was_asked_to_stop(),
          .failure = supervisor.failure()};
}

// A signal to stop that arrived while no ranks ran. Signals to pass on are dropped.
std::optional<int> stop_signal(launch::SignalScope& signals) {
  while (const auto request = signals.next())
    if (request->is_stop()) return request->signal;
  return std::nullopt;
}

int run_with_restarts(const ProgramOptions& options, const launch::AttemptRunner& run,
                      launch::SignalScope& signals, const launch::StoreAccess* store) {
  for (int restarts = 0;; ++restarts) {
    const auto end = run(options, {.number = restarts, .restarts = restarts, .store = store});
    const bool may_restart = end.failure && !end.was_asked_to_stop && restarts < options.max_restarts;
    if (!may_restart) return end.exit_code;
    launch::kill_descendants();  // processes that ranks have left would hold ports and memory
    if (const auto signal = stop_signal(signals)) return launch::kExitSignalled + *signal;
    log_warning("all ranks are started anew: restart " + std::to_string(restarts + 1) + " of " +
                std::to_string(options.max_restarts));
  }
}

// A single node serves its store to its own ranks only. Several nodes without a rendezvous serve none: their
// ranks connect at the main port.
int run_here(const ProgramOptions& options, const launch::AttemptRunner& run, launch::SignalScope& signals) {
  if (options.launch.num_nodes > 1) return run_with_restarts(options, run, signals, nullptr);
  const auto key = launch::job_token().value_or(rendezvous::random_bytes(rendezvous::kChallengeBytes));
  const rendezvous::StoreServer store(
      rendezvous::listen_by({loopback_address(), 0}, std::chrono::steady_clock::now()), key);
  const launch::StoreAccess access(store.endpoint(), key);
  return run_with_restarts(options, run, signals, &access);
}

}  // namespace

int run_program(const ProgramOptions& given) {
  warn_of_no_working_directory();
  ProgramOptions options = given;
  options.launch = launch::settled(given.launch);
  const auto command = whole_command(options);
  require_descriptors(options);
  launch::require_interpreter(launch::find_program(command.front()));
  const Program program{.command = command, .logs = make_log_folder(options)};
  return launch::run_guarded([&](launch::LauncherEvents& events) {
    std::optional<launch::StarterLink> starter;
    if (options.tied_to_stdin) events.add(starter.emplace());
    const auto run = [&](const ProgramOptions& placed, const launch::Attempt& attempt) {
      if (starter) starter->set_may_restart(attempt.restarts < options.max_restarts);
      return run_once(placed, program, attempt, events);
    };
    return options.rendezvous ? launch::run_rounds(options, run, events)
                              : run_here(options, run, events.signals());
  });
}

}  // namespace lockstep
