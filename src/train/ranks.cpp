#include "train/ranks.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/base/process.h>
#include <lockstep/device/device.h>
#include <lockstep/launch/join.h>
#include <lockstep/launch/launch.h>
#include <lockstep/loggers/csv_logger.h>
#include <lockstep/train/run_directory.h>

namespace lockstep::detail {
namespace {

// The command line of this process.
std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

[[noreturn]] void refuse_devices(int asked, int started) {
  throw ConfigError("train", {.what = "devices differs from what the launcher started on this node",
                              .expected = std::to_string(started) + " (LOCAL_WORLD_SIZE), or auto",
                              .got = std::to_string(asked)});
}

// Our own launcher has written this file already, before its ranks ran.
void write_ranks(const std::filesystem::path& run_dir, const std::vector<std::string>& pids) {
  nlohmann::ordered_json ranks;
  for (std::size_t rank = 0; rank < pids.size(); ++rank) ranks[std::to_string(rank)] = std::stol(pids[rank]);
  write_file_atomically(run_dir / "ranks.json", ranks.dump(2) + "\n");
}

// Better before training than after it.
void check_target(const std::filesystem::path& save_weights) {
  if (save_weights.empty()) return;
  const auto folder = std::filesystem::absolute(save_weights).parent_path();
  if (std::filesystem::is_directory(folder) && !std::filesystem::is_directory(save_weights)) return;
  throw ConfigError("train", {.what = "save_weights " + save_weights.string() + " cannot be written",
                              .expected = "a file name in a folder that exists",
                              .got = std::filesystem::is_directory(folder) ? "a folder" : "no such folder"});
}

}  // namespace

WorldShape world_shape(const TrainerOptions& options, const ClusterEnvironment& environment) {
  const WorldShape asked{.devices = parse_devices(options.accelerator, options.devices).count,
                         .num_nodes = options.num_nodes};
  if (!environment.creates_processes_externally()) return asked;
  const int local = local_world_size().value_or(environment.world_size());
  if (options.devices != "auto") {
    environment.validate_settings(asked.devices, asked.num_nodes);
    if (asked.devices != local) refuse_devices(asked.devices, local);
    return asked;
  }
  // Environments that know the size of the world know the number of nodes.
  const int world = environment.world_size();
  return {.devices = local, .num_nodes = world > 1 ? std::max(1, world / local) : asked.num_nodes};
}

void start_ranks_if_needed(RunState& state) {
  const bool alone = state.shape.devices * state.shape.num_nodes == 1;
  if (alone || state.environment->creates_processes_externally()) return;
  const auto* ddp = std::get_if<Ddp>(&state.options.strategy);
  if (ddp != nullptr && ddp->start_method == StartMethod::kFork) {
    throw ConfigError(
        "train",
        {.what = "strategy ddp_fork: the ranks can no longer be forked",
         .expected = "devices to be known to ls::run(), by flag, YAML, environment or Program::trainer",
         .got = "devices " + state.options.devices + " given to a Trainer",
         .hint = "use strategy ddp, which starts the program anew"});
  }
  auto& run = state.options.run;
  run.run_dir = claim_run_directory(run.run_dir, run.name);
  // The copies must not claim folders of their own.
  env::set("LOCKSTEP_RUN_DIR", run.run_dir.string());
  auto arguments = own_arguments();
  std::vector<char*> argv;
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::exit(launch_reexec(launch_options(state.shape.devices, state.shape.num_nodes, run.run_dir),
                          static_cast<int>(arguments.size()), argv.data()));
}

void join_ranks(RunState& state) {
  if (state.environment_ready) return;
  state.strategy->setup_environment(*state.environment, state.shape);
  state.strategy->barrier();
  if (state.communicator().size() > 1) {
    state.figures.start_to_first_collective_s = std::chrono::duration<double>(time_since_start()).count();
  }
  state.environment_ready = true;
}

void open_run_directory(RunState& state) {
  if (!state.run_dir.empty()) return;
  std::string folder;
  if (state.is_global_zero()) {
    folder = claim_run_directory(state.options.run.run_dir, state.options.run.name).string();
  }
  state.run_dir = state.communicator().broadcast_bytes(folder, 0);
  configure_log({.rank = state.environment->global_rank(),
                 .world_size = state.environment->world_size(),
                 .file = state.run_dir / "logs" /
                         ("rank_" + std::to_string(state.environment->global_rank()) + ".log")});
  const auto pids = state.communicator().all_gather_bytes(std::to_string(getpid()));
  if (!state.is_global_zero()) return;
  if (!env::get("LOCKSTEP_LAUNCHED")) write_ranks(state.run_dir, pids);
  check_target(state.options.run.save_weights);
  if (!state.options.run.config_yaml.empty()) {
    write_file_atomically(state.run_dir / "config.yaml", state.options.run.config_yaml);
  }
  if (state.options.logger) state.loggers.push_back(std::make_unique<CsvLogger>(state.run_dir));
}

}  // namespace lockstep::detail
