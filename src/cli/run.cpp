#include "cli/run.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <thread>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/base/options.h>
#include <lockstep/base/version.h>
#include <lockstep/cli/run.h>
#include <lockstep/cluster/detect.h>
#include <lockstep/device/accelerator.h>
#include <lockstep/device/allocator.h>
#include <lockstep/device/devices.h>
#include <lockstep/launch/join.h>
#include <lockstep/launch/launch.h>
#include <lockstep/torch.h>
#include <lockstep/train/run_directory.h>

#include "base/memory_failure.h"
#include "base/system.h"
#include "cluster/environment_end.h"
#include "fabric/connector.h"
#include "launch/outside_ranks.h"
#include "launch/run_directory_lock.h"
#include "launch/signals.h"
#include "strategy/deepspeed_run.h"
#include "train/options/earlier_record.h"
#include "train/options/former_options.h"
#include "train/options/run_directory.h"
#include "train/options/run_record.h"

namespace lockstep::detail {

OptionTree tree_of(Program& program, Settings& settings) {
  OptionTree tree;
  if (program.fabric) {
    tree.add("", settings.fabric.run, "the run");
    tree.add("fabric", settings.fabric, "the Fabric");
  } else {
    tree.add("", settings.run, "the run");
    tree.add("trainer", settings.trainer, "the Trainer");
  }
  if (std::ranges::count(program.verbs, "tune") > 0) tree.add("tune", settings.tune, "the verb tune");
  for (const auto& options : program.options) options.add_to(tree);
  return tree;
}

}  // namespace lockstep::detail

namespace lockstep {

using detail::Settings;
using detail::tree_of;

namespace {

constexpr int kUsage = 2;

// Thrown to leave the program's body where the configuration is complete and only to be printed.
struct ConfigPrinted {};

HyperParameter hyper_parameter(const OptionInfo& option) {
  const auto& text = option.default_value;
  if (option.type == "text" || option.type == "path" || option.type == "name")
    return text;  // also where it looks like a number
  if (const auto number = OptionType<std::int64_t>::parse(text)) return *number;
  if (const auto number = OptionType<double>::parse(text)) return *number;
  if (const auto flag = OptionType<bool>::parse(text)) return *flag;
  return text;
}

// The program's own options are what a run is known by.
HyperParameters hyper_parameters_of(const Program& program) {
  OptionTree tree;
  for (const auto& options : program.options) options.add_to(tree);
  HyperParameters parameters;
  for (const auto& option : tree.list()) {
    auto name = option.key;
    std::ranges::replace(name, '.', '/');
    parameters.emplace_back(std::move(name), hyper_parameter(option));
  }
  return parameters;
}

CommandLineInfo info_of(const Program& program) {
  return {.program = program.name,
          .description = program.description,
          .verbs = program.verbs,
          .version = std::string("lockstep ") + kVersion,
          .instead_of = [](std::string_view key) { return std::string(detail::instead_of_former(key)); }};
}

int print_error(const std::exception& error) {
  std::fprintf(stderr, "lockstep: %s\n", detail::failure_text(error).c_str());
  return dynamic_cast<const ConfigError*>(&error) != nullptr ? kUsage : 1;
}

std::shared_ptr<ClusterEnvironment> environment_of(const FabricOptions& options) {
  return detail::named_environment(options.strategy, options.cluster_environment);
}

std::shared_ptr<ClusterEnvironment> environment_of(const TrainerOptions& options) {
  auto besides = options.cluster_environment;
  for (const auto& plugin : options.plugins) {
    const auto* own = std::get_if<std::shared_ptr<ClusterEnvironment>>(&plugin);
    if (own != nullptr && *own) besides = *own;
  }
  return detail::named_environment(options.strategy, besides);
}

// An environment of the program's own by which this process is a rank gets its teardown, also where flags are
// refused.
template <class Options>
void promise_teardown(const Options& options) {
  try {
    const auto environment = environment_of(options);
    if (environment && environment->creates_processes_externally()) cluster::tear_down_at_end(environment);
  } catch (const std::exception&) {  // it is refused where it is used
  }
}

// Whether this process was started as a rank, as far as that is known before the program's body runs: by a
// launcher, or in the words of an environment that `options` name.
template <class Options>
bool is_started(Options options, const StrategyOptions& code) {
  if (started_by_launcher()) return true;
  try {
    detail::keep_code_only_options(code, options.strategy);
    const auto environment = environment_of(options);
    return environment && environment->creates_processes_externally();
  } catch (const ConfigError&) {
    return false;  // a rank that it names may know its place
  }
}

// Ranks that this process must fork; 0 when it is itself a rank, or the ranks are started another way.
template <class Options>
int ranks_to_fork(const Options& options, bool is_rank, bool print_config) {
  if (print_config || is_rank) return 0;
  const int count = devices_of_run(options.strategy, options.accelerator, options.devices).count;
  detect_environment()->validate_settings(count, options.num_nodes);
  const auto start = rank_start(options.strategy);
  if (start && start->start_method == StartMethod::kSpawn) return 0;
  // With other threads about, only a fresh process will do: Trainer and Fabric start those.
  if ((!start || start->start_method == StartMethod::kAuto) && !can_fork()) return 0;
  return count * options.num_nodes > 1 ? count : 0;
}

// In a process that is a rank, before its first random numbers: LibTorch looks for CUDA but once.
template <class Options>
void load_accelerator(const Options& options, bool is_rank) {
  const auto plan = devices_of_run(options.strategy, options.accelerator, options.devices);
  if (!is_rank && plan.count * options.num_nodes != 1) return;
  if (options.expandable_segments && plan.accelerator != "cpu") detail::ask_for_expandable_segments();
  if (!plan.names.empty()) {
    const auto named = environment_of(options);
    show_device_of_rank(plan, (named ? named : detect_environment())->local_rank());
  }
  find_accelerator(plan.accelerator)->load();
}

void warn_of_many(int ranks) {
  const auto cores = std::thread::hardware_concurrency();
  if (ranks <= 4 * static_cast<int>(std::max(1U, cores))) return;
  log_warning(std::to_string(ranks) + " ranks on " + std::to_string(cores) + " processors will be slow");
}

}  // namespace

Cli::Cli(CommandLine command_line, Program& program)
    : command_line_(std::move(command_line)), program_(program) {}

const std::string& Cli::verb() const {
  return command_line_.verb.empty() ? program_.verbs.front() : command_line_.verb;
}

namespace {

// The environment may name DeepSpeed's file: from here on the options do.
void name_deepspeed_file(StrategyOptions& strategy) {
  if (auto* const chosen = std::get_if<DeepSpeed>(&strategy))
    chosen->config = detail::deepspeed_file(*chosen);
}

std::map<std::string, std::string> flags_of(const CommandLine& command_line) {
  std::map<std::string, std::string> flags;
  for (const auto& [key, value, source] : command_line.assignments) {
    if (source.kind == Source::Kind::kFlag) flags[key] = one_line(value);
  }
  return flags;
}

}  // namespace

TrainerOptions Cli::trainer() const { return trainer(program_.trainer); }

TrainerOptions Cli::trainer(TrainerOptions defaults) const {
  const auto code = defaults;
  OptionTree tree;
  tree.add("trainer", defaults);
  tree.apply(command_line_.assignments, "trainer");
  detail::keep_code_only_options(code, defaults);
  name_deepspeed_file(defaults.strategy);
  Settings settings{.trainer = std::move(defaults), .run = run_, .tune = tune_};
  settings.run.run_dir = wanted_run_dir_;  // another run of the saved configuration gets a folder of its own
  settings.run.config_yaml = tree_of(program_, settings).to_yaml();
  settings.run.run_dir = run_.run_dir;
  print_if_asked(settings.run.config_yaml);
  settings.run.hyper_parameters = hyper_parameters_of(program_);
  settings.run.flags = flags_of(command_line_);
  settings.trainer.run = std::move(settings.run);
  return std::move(settings.trainer);
}

FabricOptions Cli::fabric() const { return fabric(program_.fabric.value_or(FabricOptions{})); }

FabricOptions Cli::fabric(FabricOptions defaults) const {
  if (!program_.fabric) {
    throw ConfigError("cli", {.what = "Cli::fabric() in a program without --fabric.*",
                              .expected = "ls::run(argc, argv, {.fabric = ls::FabricOptions{}}, ...)",
                              .got = "a Program whose fabric is not set"});
  }
  const auto code = defaults.strategy;
  OptionTree tree;
  tree.add("fabric", defaults);
  tree.apply(command_line_.assignments, "fabric");
  detail::keep_code_only_options(code, defaults.strategy);
  name_deepspeed_file(defaults.strategy);
  Settings settings{.fabric = std::move(defaults)};
  settings.fabric.run = {
      .run_dir = wanted_run_dir_, .seed_everything = run_.seed_everything, .flags = flags_of(command_line_)};
  print_if_asked(tree_of(program_, settings).to_yaml());
  settings.fabric.run.run_dir = run_.run_dir;
  settings.fabric.run.leave_run_dir = [folder = run_.run_dir] { detail::give_back_run_directory(folder); };
  return std::move(settings.fabric);
}

void Cli::print_if_asked(const std::string& config_yaml) const {
  if (!command_line_.print_config) return;
  std::fputs(config_yaml.c_str(), stdout);
  finish_standard_output();
  throw ConfigPrinted{};
}

int run(int argc, char** argv, Program program, const std::function<void(Cli&)>& body) {
  occupy_standard_descriptors();
  launch::heed_signals_as_first_process();
  (void)std::signal(SIGXFSZ, SIG_IGN);  // a file that grows beyond its limit is an error like a full disk
  try {
    publish_start();
    join_launcher();
    if (program.name.empty()) program.name = std::filesystem::path(argv[0]).filename().string();
    program.fabric ? promise_teardown(*program.fabric) : promise_teardown(program.trainer);
    Settings settings{.trainer = program.trainer,
                      .fabric = program.fabric.value_or(FabricOptions{}),
                      .run = program.trainer.run,
                      .tune = program.tune};
    settings.run.name = program.name;
    const auto tree = tree_of(program, settings);
    auto command_line = parse_command_line(argc, argv, tree, info_of(program));
    if (command_line.text_to_print) {
      std::fputs(command_line.text_to_print->c_str(), stdout);
      return 0;
    }
    detail::take_lightning_keys(command_line.assignments);
    tree.apply(command_line.assignments);
    auto& options = settings.run;
    if (program.fabric) {
      options.run_dir = settings.fabric.run.run_dir;
      options.seed_everything = settings.fabric.run.seed_everything;
    }
    const auto wanted_run_dir = options.run_dir;
    const bool print_config = command_line.print_config;
    bool is_rank = program.fabric ? is_started(settings.fabric, program.fabric->strategy)
                                  : is_started(settings.trainer, program.trainer.strategy);
    const int ranks = program.fabric ? ranks_to_fork(settings.fabric, is_rank, print_config)
                                     : ranks_to_fork(settings.trainer, is_rank, print_config);
    const int num_nodes = program.fabric ? settings.fabric.num_nodes : settings.trainer.num_nodes;
    if (!print_config && !is_rank) {
      options.run_dir = claim_run_directory(options.run_dir, options.name, settings.trainer.default_root_dir);
      if (detect_environment()->node_rank() == 0) {
        launch::hold_run_directory(options.run_dir);  // refuses one in use; rank 0 holds it when it opens it
        if (program.fabric) detail::put_record_aside(options.run_dir);
      }
    }
    // A program with a Fabric may have computed for long before it is refused something.
    const bool is_watched = !print_config && !is_rank && !program.fabric;
    const detail::FolderBeforeRun folder(is_watched ? options.run_dir : std::filesystem::path());
    const auto ended = [&](int code) {
      if (code == kUsage) folder.restore();
      return code;
    };
    warn_of_many(ranks);

    Cli cli(std::move(command_line), program);
    cli.run_ = options;
    cli.tune_ = settings.tune;
    cli.wanted_run_dir_ = wanted_run_dir;
    const auto rank_body = [&] {
      // OpenMP read the variable when LibTorch was loaded, before the ranks were forked.
      if (ranks != 0 && !is_rank) at::set_num_threads(threads_per_rank());
      const bool must_load = is_rank || ranks != 0;
      if (!print_config && program.fabric) load_accelerator(settings.fabric, must_load);
      if (!print_config && !program.fabric) load_accelerator(settings.trainer, must_load);
      detail::repeat_seed(std::stoi(told_rank().value_or("0")));
      if (options.seed_everything) torch::manual_seed(*options.seed_everything);
      try {
        body(cli);
      } catch (const ConfigPrinted&) {
      }
    };
    if (ranks == 0) return ended(run_rank(rank_body, options.run_dir));
    {
      const launch::OutsideRanks outside(ranks);
      const int code = launch_forked(launch_options(ranks, num_nodes, options.run_dir),
                                     [&] { return run_rank(rank_body); });
      if (!outside.were_found()) return ended(code);
    }
    is_rank = true;  // as the environment that the body has made knows
    if (detail::give_back_run_directory(options.run_dir)) cli.run_.run_dir = options.run_dir = wanted_run_dir;
    return run_rank(rank_body, options.run_dir);
  } catch (const std::exception& error) {
    return print_error(error);
  }
}

int run(int argc, char** argv, const std::function<void(Cli&)>& body) {
  return run(argc, argv, Program{}, body);
}

namespace {

using Row = std::pair<std::string, std::string>;  // key and value of an option

std::string table_of(const std::vector<Row>& rows) {
  std::string table = "option                     found";
  for (const auto& [key, value] : rows) {
    char line[160];
    std::snprintf(line, sizeof line, "\n--%-22s   %s", key.c_str(), value.c_str());
    table += line;
  }
  return table;
}

// The saved configuration with other values; what the command line said stays.
std::string with_values(Program& program, const std::filesystem::path& config, const std::vector<Row>& rows) {
  detail::Settings settings{.trainer = program.trainer, .run = program.trainer.run, .tune = program.tune};
  const auto tree = detail::tree_of(program, settings);
  auto assignments = read_yaml_file(config);
  tree.apply(assignments);
  for (const auto& [key, value] : rows) tree.apply(std::vector{Assignment{key, {.text = value}, {}}});
  return tree.to_yaml();
}

}  // namespace

void describe(OptionVisitor& v, TuneOptions& o) {
  v.field("batch_size", o.batch_size, "Look for the largest batch that fits into memory");
  v.field("lr", o.lr, "Look for a learning rate");
  v.group("scale_batch_size", o.scale_batch_size, "how the size of batches is looked for");
  v.group("lr_find", o.lr_find, "how the learning rate is looked for");
}

void Cli::set_option(const std::string& key, const std::string& value) const {
  OptionTree tree;
  for (const auto& options : program_.options) options.add_to(tree);
  tree.apply(std::vector{Assignment{key, {.text = value}, {}}});
}

std::optional<ScaleBatchSizeOptions> Cli::batch_size_search(const TuneTargets& targets) const {
  if (targets.batch_size.empty() || !tune_.batch_size) return std::nullopt;
  auto options = tune_.scale_batch_size;
  options.apply = [this, key = targets.batch_size](std::int64_t size) {
    set_option(key, OptionType<std::int64_t>::print(size));
  };
  return options;
}

std::optional<LrFindOptions> Cli::lr_search(const TuneTargets& targets) const {
  if (targets.lr.empty() || !tune_.lr) return std::nullopt;
  auto options = tune_.lr_find;
  options.apply = [this, key = targets.lr](double lr) { set_option(key, OptionType<double>::print(lr)); };
  return options;
}

void Cli::report(const Tuned& tuned, const TuneTargets& targets, const Trainer& trainer) const {
  if (trainer.is_global_zero()) write_report(tuned, targets, trainer);
  if (!tuned.lr_curve || tuned.lr_curve->suggestion()) return;
  throw Error("tuner", {.what = "no learning rate was found for --" + targets.lr,
                        .expected = "a loss that falls, over more than a few steps",
                        .got = std::to_string(tuned.lr_curve->lr.size()) + " steps",
                        .hint = "--tune.lr_find.num_training sets how many there are"});
}

void Cli::write_report(const Tuned& tuned, const TuneTargets& targets, const Trainer& trainer) const {
  std::vector<Row> rows;
  if (tuned.batch_size) rows.emplace_back(targets.batch_size, std::to_string(*tuned.batch_size));
  if (tuned.lr_curve) {
    const auto lr = tuned.lr_curve->suggestion();
    if (lr) rows.emplace_back(targets.lr, OptionType<double>::print(*lr));
    tuned.lr_curve->plot(trainer.run_dir() / "lr_find.svg");
  }
  trainer.print(table_of(rows));
  if (trainer.run_dir().empty()) return;  // nothing was looked for, or nothing is to be written
  const auto config = trainer.run_dir() / "config.yaml";
  write_file_atomically(config, with_values(program_, config, rows));
}

}  // namespace lockstep
