#include <lockstep/cli/run.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <thread>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/base/process.h>
#include <lockstep/base/version.h>
#include <lockstep/device/device.h>
#include <lockstep/launch/join.h>
#include <lockstep/launch/launch.h>
#include <lockstep/launch/run_rank.h>
#include <lockstep/torch.h>
#include <lockstep/train/run_directory.h>

namespace lockstep {
namespace {

constexpr int kUsage = 2;

// Thrown to leave the program's body where the configuration is complete and only to be printed.
struct ConfigPrinted {};

OptionTree tree_of(Program& program, TrainerOptions& trainer, RunOptions& run) {
  OptionTree tree;
  tree.add("", run, "the run");
  tree.add("trainer", trainer, "the Trainer");
  for (const auto& options : program.options) options.add_to(tree);
  return tree;
}

CommandLineInfo info_of(const Program& program) {
  return {.program = program.name,
          .description = program.description,
          .verbs = program.verbs,
          .version = std::string("lockstep ") + kVersion};
}

int print_error(const std::exception& error) {
  std::fprintf(stderr, "lockstep: %s\n", error.what());
  return dynamic_cast<const ConfigError*>(&error) != nullptr ? kUsage : 1;
}

// Ranks that this process must fork; 0 when it is itself a rank, or the ranks are started another way.
int ranks_to_fork(const TrainerOptions& trainer, bool print_config) {
  if (print_config || started_by_launcher()) return 0;
  const auto* ddp = std::get_if<Ddp>(&trainer.strategy);
  if (ddp != nullptr && ddp->start_method == StartMethod::kSpawn) return 0;
  // With other threads about, only a fresh process will do: the Trainer starts those.
  if ((ddp == nullptr || ddp->start_method == StartMethod::kAuto) && !can_fork()) return 0;
  const int count = parse_devices(trainer.accelerator, trainer.devices).count;
  return count * trainer.num_nodes > 1 ? count : 0;
}

}  // namespace

Cli::Cli(CommandLine command_line, Program& program)
    : command_line_(std::move(command_line)), program_(program) {}

const std::string& Cli::verb() const {
  return command_line_.verb.empty() ? program_.verbs.front() : command_line_.verb;
}

TrainerOptions Cli::trainer() const { return trainer(program_.trainer); }

TrainerOptions Cli::trainer(TrainerOptions defaults) const {
  OptionTree tree;
  tree.add("trainer", defaults);
  tree.apply(command_line_.assignments, "trainer");
  RunOptions run = run_;
  run.run_dir = wanted_run_dir_;  // another run of the saved configuration gets a folder of its own
  run.config_yaml = tree_of(program_, defaults, run).to_yaml();
  run.run_dir = run_.run_dir;
  if (command_line_.print_config) {
    std::fputs(run.config_yaml.c_str(), stdout);
    throw ConfigPrinted{};
  }
  defaults.run = std::move(run);
  return defaults;
}

int run(int argc, char** argv, Program program, const std::function<void(Cli&)>& body) {
  try {
    publish_start();
    join_launcher();
    if (program.name.empty()) program.name = std::filesystem::path(argv[0]).filename().string();
    auto trainer = program.trainer;
    RunOptions run_options = trainer.run;
    run_options.name = program.name;
    const auto tree = tree_of(program, trainer, run_options);
    auto command_line = parse_command_line(argc, argv, tree, info_of(program));
    if (command_line.text_to_print) {
      std::fputs(command_line.text_to_print->c_str(), stdout);
      return 0;
    }
    tree.apply(command_line.assignments);
    const auto wanted_run_dir = run_options.run_dir;
    const int ranks = ranks_to_fork(trainer, command_line.print_config);
    if (!command_line.print_config && !started_by_launcher()) {
      run_options.run_dir = claim_run_directory(run_options.run_dir, run_options.name);
    }

    const auto cores = std::thread::hardware_concurrency();
    if (ranks > 4 * static_cast<int>(std::max(1U, cores))) {
      log_warning(std::to_string(ranks) + " ranks on " + std::to_string(cores) + " processors will be slow");
    }
    Cli cli(std::move(command_line), program);
    cli.run_ = run_options;
    cli.wanted_run_dir_ = wanted_run_dir;
    const auto rank_body = [&] {
      // OpenMP read the variable when LibTorch was loaded, before the ranks were forked.
      if (ranks != 0) at::set_num_threads(threads_per_rank());
      if (run_options.seed_everything) torch::manual_seed(*run_options.seed_everything);
      try {
        body(cli);
      } catch (const ConfigPrinted&) {
      }
    };
    if (ranks == 0) return run_rank(rank_body, run_options.run_dir);
    return launch_forked(launch_options(ranks, trainer.num_nodes, run_options.run_dir),
                         [&] { return run_rank(rank_body); });
  } catch (const std::exception& error) {
    return print_error(error);
  }
}

int run(int argc, char** argv, const std::function<void(Cli&)>& body) {
  return run(argc, argv, Program{}, body);
}

}  // namespace lockstep
