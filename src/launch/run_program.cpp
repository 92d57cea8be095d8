#include <lockstep/launch/run_program.h>

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/launch/join.h>

#include "launch/descendants.h"
#include "launch/exec_image.h"
#include "launch/forked_ranks.h"
#include "launch/guarded.h"
#include "launch/listen_socket.h"
#include "launch/node_rounds.h"
#include "launch/output_relay.h"
#include "launch/validate_launch.h"
#include "rendezvous/authentication.h"
#include "rendezvous/store_server.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int kCannotExecute = 127;  // as shells say

[[noreturn]] void refuse_program(const std::string& program, const std::string& why) {
  throw ConfigError("launch",
                    {.what = "program " + program, .expected = "one that can be executed", .got = why});
}

// What a shell would execute for `name`.
fs::path find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (!fs::exists(name)) refuse_program(name, "no such file");
    if (fs::is_directory(name)) refuse_program(name, "a folder");
    if (::access(name.c_str(), X_OK) != 0) refuse_program(name, "a file without permission to execute");
    return name;
  }
  std::string folders = env::get("PATH").value_or("/usr/bin:/bin");
  for (std::size_t begin = 0; begin <= folders.size();) {
    const auto end = std::min(folders.find(':', begin), folders.size());
    const auto candidate = fs::path(folders.substr(begin, end - begin)) / name;
    if (fs::is_regular_file(candidate) && ::access(candidate.c_str(), X_OK) == 0) return candidate;
    begin = end + 1;
  }
  refuse_program(name, fs::exists(name) ? "not in PATH; a file of this folder is ./" + name : "not in PATH");
}

std::vector<std::string> whole_command(const ProgramOptions& options) {
  auto command = options.command;
  if (command.empty())
    throw ConfigError("launch", {.what = "lockstep run", .expected = "a program to run", .got = "none"});
  if (options.no_python || !command.front().ends_with(".py")) return command;
  if (!fs::exists(command.front())) refuse_program(command.front(), "no such file");
  command.insert(command.begin(), {"python3", "-u"});
  return command;
}

// Somebody may take it before rank 0 does; that is one failed start.
int free_port(const LaunchOptions& options) {
  if (options.main_port != 0 || options.node_rank != 0) return options.main_port;
  return launch::listen_on(std::span(&options.main_address, 1), 0).port;
}

// torchrun's, beside those of rank_plan.h.
void add_elastic_variables(launch::RankPlan& plan, const ProgramOptions& options, int restarts,
                           const fs::path& folder) {
  plan.variables["TORCHELASTIC_RUN_ID"] = options.run_id;
  plan.variables["TORCHELASTIC_RESTART_COUNT"] = std::to_string(restarts);
  plan.variables["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(options.max_restarts);
  plan.variables["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  plan.variables["TORCHELASTIC_ERROR_FILE"] =
      folder.empty() ? "" : (folder / std::to_string(plan.local_rank) / "error.json").string();
  plan.variables["ROLE_NAME"] = options.output.role;
  plan.variables["ROLE_RANK"] = plan.variables["RANK"];
  plan.variables["ROLE_WORLD_SIZE"] = plan.variables["WORLD_SIZE"];
  plan.leads_session = true;
}

bool writes_files(const OutputOptions& output) {
  return !output.log_dir.empty() || !output.redirects.is_none() || !output.tee.is_none();
}

fs::path make_log_folder(const ProgramOptions& options) {
  if (!writes_files(options.output)) return {};
  const auto& chosen = options.output.log_dir;
  const auto parent = chosen.empty() ? fs::temp_directory_path() : chosen;
  create_folders(parent);
  std::string name = (parent / (options.run_id + "_XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr) launch::throw_errno("cannot make a folder in " + parent.string());
  if (chosen.empty()) log_info("logs are in " + name);
  return name;
}

launch::LaunchEnd run_once(const ProgramOptions& options, const std::vector<std::string>& command,
                           const launch::Attempt& attempt, const fs::path& logs, launch::Lifeline& lifeline) {
  const auto folder = logs.empty() ? logs : logs / ("attempt_" + std::to_string(attempt.number));
  const auto& chosen = options.launch;
  launch::RunFiles files(chosen);
  launch::StatusTable statuses(chosen.nprocs);
  launch::SignalScope signals;
  launch::OutputRelay relay(options.output, chosen.nprocs, folder);
  auto plans =
      launch::plan_ranks(chosen, {.launched = "run", .port = free_port(chosen), .status_fd = statuses.fd()});
  for (auto& plan : plans) {
    add_elastic_variables(plan, options, attempt.restarts, folder);
    attempt.store->add_to(plan, attempt.number);
    if (!folder.empty()) create_folders(folder / std::to_string(plan.local_rank));
  }
  const auto program = find_program(command.front());
  const auto images = launch::make_images(plans, program, command);
  auto ranks = launch::start_ranks(plans, signals, [&](const launch::RankPlan& plan) {
    relay.become_output_of(plan.local_rank);
    ::signal(SIGPIPE, SIG_DFL);
    images[static_cast<std::size_t>(plan.local_rank)].execute();
    ::dprintf(STDERR_FILENO, "cannot execute %s: %s\n", program.c_str(), std::strerror(errno));
    ::_exit(kCannotExecute);
  });
  relay.close_writers();
  std::vector<launch::RankObserver*> observers{&relay, &lifeline};
  if (attempt.observer != nullptr) observers.push_back(attempt.observer);
  launch::Supervisor supervisor(chosen, files, statuses, signals, std::move(ranks), std::move(observers));
  const int exit_code = supervisor.run();
  return {.exit_code = exit_code,
          .was_asked_to_stop = supervisor.was_asked_to_stop(),
          .failure = supervisor.failure()};
}

// Nobody else has to reach the store of a lone node.
int run_alone(const ProgramOptions& options, const launch::AttemptRunner& run) {
  const auto key = launch::job_token().value_or(rendezvous::random_bytes(rendezvous::kChallengeBytes));
  const rendezvous::StoreServer store(
      rendezvous::listen_by({"127.0.0.1", 0}, std::chrono::steady_clock::now()), key);
  const launch::StoreAccess access(store.endpoint(), key);
  for (int restarts = 0;; ++restarts) {
    const auto end = run(options, {.number = restarts, .restarts = restarts, .store = &access});
    const bool may_restart = end.failure && !end.was_asked_to_stop && restarts < options.max_restarts;
    if (!may_restart) return end.exit_code;
    launch::kill_descendants();  // what ranks have left would hold ports and memory
    log_warning("all ranks are started anew: restart " + std::to_string(restarts + 1) + " of " +
                std::to_string(options.max_restarts));
  }
}

}  // namespace

int run_program(const ProgramOptions& options) {
  launch::validate(options.launch);
  const auto command = whole_command(options);
  find_program(command.front());
  const auto logs = make_log_folder(options);
  return launch::run_guarded([&](launch::Lifeline& lifeline) {
    const auto run = [&](const ProgramOptions& placed, const launch::Attempt& attempt) {
      return run_once(placed, command, attempt, logs, lifeline);
    };
    return options.rendezvous ? launch::run_rounds(options, run) : run_alone(options, run);
  });
}

}  // namespace lockstep
