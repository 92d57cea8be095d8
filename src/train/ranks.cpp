// How a Trainer's ranks are found or started, join, and agree on the folder of the run.
#include "train/run_lifecycle.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/launch/join.h>
#include <lockstep/train/run_directory.h>

#include "fabric/connector.h"
#include "formats/file_text.h"
#include "launch/run_directory_lock.h"
#include "train/checkpoints/last_weights.h"
#include "train/logging/run_log.h"
#include "train/options/earlier_record.h"
#include "train/options/run_directory.h"
#include "train/options/run_record.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

// Writes ranks.json, unless our own launcher has: it does so for the first Trainer of its ranks.
void write_ranks(const fs::path& run_dir, const std::vector<std::string>& pids) {
  nlohmann::ordered_json ranks;
  for (std::size_t rank = 0; rank < pids.size(); ++rank) ranks[std::to_string(rank)] = std::stol(pids[rank]);
  write_file_atomically(run_dir / "ranks.json", ranks.dump(2) + "\n");
}

// The run directory that this rank names, where that is not rank 0's; empty otherwise.
std::string other_run_dir(const RunSetup& setup) {
  const auto& wanted = setup.options.run.run_dir;
  std::error_code ignored;
  if (wanted.empty() || fs::equivalent(wanted, setup.run_dir, ignored)) return {};
  return fs::absolute(wanted).string();
}

// Refuses ranks of one node that name different run directories: one would stay empty, or mix two runs.
// Another node may have its own folder for what its launcher writes. Collective.
void check_run_dirs(const RunSetup& setup) {
  const auto node = std::to_string(setup.environment->node_rank());
  const auto nodes = setup.communicator().all_gather_bytes(node);
  const auto others = setup.communicator().all_gather_bytes(other_run_dir(setup));
  for (std::size_t rank = 0; rank < others.size(); ++rank) {
    if (others[rank].empty() || nodes[rank] != nodes.front()) continue;
    throw ConfigError("train", {.what = "the ranks name different run directories",
                                .expected = setup.run_dir.string() + ", which rank 0 has",
                                .got = others[rank],
                                .where = "rank " + std::to_string(rank),
                                .hint = "give all ranks the same --run_dir"});
  }
}

// Ranks that only the program's own environment knows of have claimed a folder each.
void leave_run_directory_to_rank_0(RunSetup& setup) {
  auto& run_dir = setup.options.run.run_dir;
  const auto& environment = *setup.environment;
  const bool is_alone = !environment.creates_processes_externally() || started_by_launcher();
  if (is_alone || environment.world_size() == 1 || environment.global_rank() == 0) return;
  if (give_back_run_directory(run_dir)) run_dir.clear();
}

}  // namespace

void find_ranks(RunSetup& setup) {
  auto& options = setup.options;
  const Connector connector({.accelerator = options.accelerator,
                             .devices = options.devices,
                             .num_nodes = options.num_nodes,
                             .strategy = options.strategy,
                             .cuda_graphs = options.cuda_graphs,
                             .expandable_segments = options.expandable_segments,
                             .cluster_environment = options.cluster_environment});
  if (connector.must_start_ranks()) {
    const auto run_dir = claim_run_directory(options.run.run_dir, options.run.name, options.default_root_dir);
    // The copies must not claim folders of their own.
    env::set("LOCKSTEP_RUN_DIR", run_dir.string());
    connector.start_ranks(run_dir);
  }
  setup.environment = connector.environment();
  setup.shape = connector.shape();
  leave_run_directory_to_rank_0(setup);
  setup.strategy = connector.join();
}

void join_ranks(RunSetup& setup, RunLog& log) {
  if (setup.environment_ready) return;
  setup.strategy->setup_environment(*setup.environment, setup.shape);
  setup.strategy->barrier();
  if (setup.communicator().size() > 1) {
    log.figures.start_to_first_collective_s = std::chrono::duration<double>(time_since_start()).count();
  }
  setup.environment_ready = true;
}

void open_run_directory(RunSetup& setup, RunLog& log) {
  if (!setup.run_dir.empty()) return;
  auto& run = setup.options.run;
  const int number = setup.has_run_dir_of_program ? count_trainer_of(run.run_dir) : 1;
  std::string folder;
  if (setup.is_global_zero()) {
    const auto claimed = number == 1
                             ? claim_run_directory(run.run_dir, run.name, setup.options.default_root_dir)
                             : claim_folder_of_trainer(number, fs::absolute(run.run_dir), setup.options);
    setup.run_directory_lock = launch::hold_run_directory(claimed);
    folder = claimed.string();
  }
  if (number > 1) run.run_dir.clear();  // that of another Trainer
  setup.run_dir = setup.communicator().broadcast_bytes(folder, 0);
  check_run_dirs(setup);
  configure_log({.rank = setup.environment->global_rank(),
                 .world_size = setup.environment->world_size(),
                 .file = setup.run_dir / "logs" /
                         ("rank_" + std::to_string(setup.environment->global_rank()) + ".log")});
  auto pids = setup.communicator().all_gather_bytes(std::to_string(getpid()) + ' ' + own_seed());
  if (!setup.is_global_zero()) return;
  auto& facts = setup.facts;
  facts.trainer = number;
  for (auto& pid : pids) {
    const auto blank = pid.find(' ');
    facts.seeds.push_back(pid.substr(blank + 1));
    pid.resize(blank);
  }
  if (!env::get("LOCKSTEP_LAUNCHED") || number > 1) write_ranks(setup.run_dir, pids);
  check_last_weights(setup.options.run.save_weights);
  if (!holds_record(setup.run_dir)) write_record(setup);
  log.loggers = make_loggers(setup.options, setup.run_dir);
  if (!setup.options.barebones) log_info("run directory: " + as_utf8(setup.run_dir.string()));
}

}  // namespace lockstep::detail
