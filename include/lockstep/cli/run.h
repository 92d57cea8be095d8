// ls::run(): what main() of a training program calls, and the options of its verb `tune`. It reads flags,
// YAML and environment, starts the ranks, and turns every failure into one line and an exit code.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/base/command_line.h>
#include <lockstep/base/export.h>
#include <lockstep/base/options.h>
#include <lockstep/fabric/fabric_options.h>
#include <lockstep/train/trainer.h>
#include <lockstep/train/tuner.h>
#include <lockstep/train/tuner_options.h>

namespace lockstep {

/// Keys of the program's own options, such as "data.batch_size" and "optimizer.lr", that `tune` finds values
/// for. What has no key is not looked for.
struct TuneTargets {
  std::string batch_size = {};  ///< key of the batch size: `data.batch_size`; empty: none
  std::string lr = {};          ///< key of the learning rate: `model.lr`; empty: none
};

/// --tune.*
struct TuneOptions {
  bool batch_size = true;  ///< look for the size of batches, with which the learning rate is looked for then
  bool lr = true;          ///< look for the learning rate
  ScaleBatchSizeOptions scale_batch_size = {};
  LrFindOptions lr_find = {};
};

LOCKSTEP_API void describe(OptionVisitor& visitor, TuneOptions& options);

/// A root of a program's own options: `--PREFIX.KEY`. Borrows the struct.
struct ProgramFlags {
  std::string prefix;                       ///< before the dot of its keys
  std::function<void(OptionTree&)> add_to;  ///< adds the options to the tree, which refers to them
};

/// Makes the described struct `options` part of the program's flags under `prefix`. Its values are
/// read before the ranks start; it must outlive run().
template <Described T>
ProgramFlags options(std::string prefix, T& options, std::string help = {}) {
  auto add_to = [prefix, &options, help](OptionTree& tree) { tree.add(prefix, options, help); };
  return {std::move(prefix), std::move(add_to)};
}

/// What run() needs to know about a program. All fields have defaults.
struct Program {
  std::string name = {};                     ///< runs/NAME; empty: the file name of argv[0]
  std::string description = {};              ///< one sentence for --help
  std::vector<std::string> verbs = {"fit"};  ///< what the program can do; the first is the default
  TuneOptions tune = {};                     ///< the defaults of --tune.*, where "tune" is one of the verbs
  TrainerOptions trainer = {};               ///< the defaults of --trainer.*
  std::optional<FabricOptions> fabric = {};  ///< the defaults of --fabric.*, which then replace --trainer.*
  std::vector<ProgramFlags> options = {};    ///< the program's own flags
};

/// What the command line said, for the program's body.
class LOCKSTEP_API Cli {
 public:
  /// Made by run(); `program` must outlive it.
  Cli(CommandLine command_line, Program& program);

  /// The verb given, or the program's first one.
  const std::string& verb() const;

  /// Program::trainer, or `defaults`, with everything applied that the user set.
  /// @throws ConfigError
  TrainerOptions trainer() const;
  /// The options of the Trainer: `defaults`, changed by flags, files and environment. They refer to this
  /// object's callbacks.
  TrainerOptions trainer(TrainerOptions defaults) const;

  /// The same for Program::fabric, which must be set.
  /// @throws ConfigError
  FabricOptions fabric() const;
  /// The options of the Fabric: `defaults`, changed by flags, files and environment.
  FabricOptions fabric(FabricOptions defaults) const;

  /// What the verb "tune" is for: finds values for `targets` as --tune.* says, by Tuner's searches, and sets
  /// these options of the program. Rank 0 prints them, and writes them to config.yaml of the run directory,
  /// with which fit starts from them, to summary.json, and the sweep of learning rates to lr_find.svg.
  /// Collective, blocking.
  /// @throws ConfigError for a key that no option of the program's own has; Error, when all of that is done,
  /// where the sweep has shown no learning rate; as Tuner's functions
  template <class Model, std::derived_from<AnyDataModule> Data>
  void tune(Trainer& trainer, const Model& model, const std::shared_ptr<Data>& data,
            const TuneTargets& targets) const {
    Tuner tuner(trainer);
    Tuned tuned;
    if (const auto wanted = batch_size_search(targets))
      tuned.batch_size = tuner.scale_batch_size(model, data, *wanted);
    if (const auto wanted = lr_search(targets)) tuned.lr_curve = tuner.lr_find(model, data, *wanted);
    report(tuned, targets, trainer);
  }

 private:
  struct Tuned {
    std::optional<std::int64_t> batch_size = {};
    std::optional<LrFindResult> lr_curve = {};
  };

  std::optional<ScaleBatchSizeOptions> batch_size_search(const TuneTargets& targets) const;
  std::optional<LrFindOptions> lr_search(const TuneTargets& targets) const;
  void set_option(const std::string& key, const std::string& value) const;
  void report(const Tuned& tuned, const TuneTargets& targets, const Trainer& trainer) const;
  void write_report(const Tuned& tuned, const TuneTargets& targets, const Trainer& trainer) const;
  void print_if_asked(const std::string& config_yaml) const;

  CommandLine command_line_;
  Program& program_;
  RunOptions run_;
  TuneOptions tune_;
  std::filesystem::path wanted_run_dir_;  // as the user gave it; empty: a new one

  friend LOCKSTEP_API int run(int, char**, Program, const std::function<void(Cli&)>&);
};

/// Runs `body` on every rank and returns the exit code for main(): 0 done, 1 failed, 2 usage or
/// configuration, 128 + N killed by signal N (130 SIGINT, 143 SIGTERM).
///
/// With --trainer.devices (or --fabric.devices) N > 1 and no launcher around it, this process forks the ranks
/// before it has touched a tensor and only supervises them; `body` runs in the ranks. Under torchrun and its
/// like nothing is started and this process is one of the ranks. Call it first thing in main().
LOCKSTEP_API int run(int argc, char** argv, Program program, const std::function<void(Cli&)>& body);
/// The same for a program without options of its own.
LOCKSTEP_API int run(int argc, char** argv, const std::function<void(Cli&)>& body);

}  // namespace lockstep
