#include "train/ranks.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/base/process.h>
#include <lockstep/train/run_directory.h>

#include "fabric/connector.h"
#include "train/logging/make_loggers.h"
#include "train/options/program_folder.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

// Our own launcher has written this file already, before its ranks ran, for their first Trainer.
void write_ranks(const fs::path& run_dir, const std::vector<std::string>& pids) {
  nlohmann::ordered_json ranks;
  for (std::size_t rank = 0; rank < pids.size(); ++rank) ranks[std::to_string(rank)] = std::stol(pids[rank]);
  write_file_atomically(run_dir / "ranks.json", ranks.dump(2) + "\n");
}

// Better before training than after it.
void check_target(const fs::path& save_weights) {
  if (save_weights.empty()) return;
  const auto folder = fs::absolute(save_weights).parent_path();
  if (fs::is_directory(folder) && !fs::is_directory(save_weights)) return;
  throw ConfigError("train", {.what = "save_weights " + save_weights.string() + " cannot be written",
                              .expected = "a file name in a folder that exists",
                              .got = fs::is_directory(folder) ? "a folder" : "no such folder"});
}

// The folder that this rank wants instead of rank 0's, if it names one.
std::string other_run_dir(const RunState& state) {
  const auto& wanted = state.options.run.run_dir;
  std::error_code ignored;
  if (wanted.empty() || fs::equivalent(wanted, state.run_dir, ignored)) return {};
  return fs::absolute(wanted).string();
}

// It would stay empty, or be a mixture of runs. Another node may have a place of its own for what its
// launcher writes. Collective.
void check_run_dirs(const RunState& state) {
  const auto node = std::to_string(state.environment->node_rank());
  const auto nodes = state.communicator().all_gather_bytes(node);
  const auto others = state.communicator().all_gather_bytes(other_run_dir(state));
  for (std::size_t rank = 0; rank < others.size(); ++rank) {
    if (others[rank].empty() || nodes[rank] != nodes.front()) continue;
    throw ConfigError("train", {.what = "the ranks name different run directories",
                                .expected = state.run_dir.string() + ", which rank 0 has",
                                .got = others[rank],
                                .where = "rank " + std::to_string(rank),
                                .hint = "give all ranks the same --run_dir"});
  }
}

}  // namespace

void find_ranks(RunState& state) {
  auto& options = state.options;
  const Connector connector({.accelerator = options.accelerator,
                             .devices = options.devices,
                             .num_nodes = options.num_nodes,
                             .strategy = options.strategy,
                             .cluster_environment = options.cluster_environment});
  if (connector.must_start_ranks()) {
    const auto run_dir = claim_run_directory(options.run.run_dir, options.run.name, options.default_root_dir);
    // The copies must not claim folders of their own.
    env::set("LOCKSTEP_RUN_DIR", run_dir.string());
    connector.start_ranks(run_dir);
  }
  state.environment = connector.environment();
  state.shape = connector.shape();
  state.strategy = connector.join();
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
  auto& run = state.options.run;
  const int number = state.has_run_dir_of_program ? count_trainer_of(run.run_dir) : 1;
  std::string folder;
  if (state.is_global_zero()) {
    const auto claimed = number == 1
                             ? claim_run_directory(run.run_dir, run.name, state.options.default_root_dir)
                             : claim_folder_of_trainer(number, fs::absolute(run.run_dir), state.options);
    folder = claimed.string();
  }
  if (number > 1) run.run_dir.clear();  // that of another Trainer
  state.run_dir = state.communicator().broadcast_bytes(folder, 0);
  check_run_dirs(state);
  configure_log({.rank = state.environment->global_rank(),
                 .world_size = state.environment->world_size(),
                 .file = state.run_dir / "logs" /
                         ("rank_" + std::to_string(state.environment->global_rank()) + ".log")});
  const auto pids = state.communicator().all_gather_bytes(std::to_string(getpid()));
  if (!state.is_global_zero()) return;
  if (!env::get("LOCKSTEP_LAUNCHED") || number > 1) write_ranks(state.run_dir, pids);
  check_target(state.options.run.save_weights);
  if (!state.options.run.config_yaml.empty()) {
    write_file_atomically(state.run_dir / "config.yaml", state.options.run.config_yaml);
  }
  state.loggers = make_loggers(state.options, state.run_dir);
}

}  // namespace lockstep::detail
