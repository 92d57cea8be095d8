// ls::run(): what main() of a training program calls. Reads flags, YAML and environment, starts the
// ranks, and turns every failure into one line and an exit code.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/base/command_line.h>
#include <lockstep/base/export.h>
#include <lockstep/fabric/fabric_options.h>
#include <lockstep/train/trainer.h>

namespace lockstep {

/// A root of a program's own options: `--PREFIX.KEY`. Borrows the struct.
struct ProgramOptions {
  std::string prefix;
  std::function<void(OptionTree&)> add_to;
};

/// Makes the described struct `options` part of the program's flags under `prefix`. Its values are
/// read before the ranks start; it must outlive run().
template <Described T>
ProgramOptions options(std::string prefix, T& options, std::string help = {}) {
  auto add_to = [prefix, &options, help](OptionTree& tree) { tree.add(prefix, options, help); };
  return {std::move(prefix), std::move(add_to)};
}

/// What run() needs to know about a program. All fields have defaults.
struct Program {
  std::string name = {};                     ///< runs/NAME; empty: the file name of argv[0]
  std::string description = {};              ///< one sentence for --help
  std::vector<std::string> verbs = {"fit"};  ///< what the program can do; the first is the default
  TrainerOptions trainer = {};               ///< the defaults of --trainer.*
  std::optional<FabricOptions> fabric = {};  ///< the defaults of --fabric.*, which then replace --trainer.*
  std::vector<ProgramOptions> options = {};  ///< the program's own flags
};

/// What the command line said, for the program's body.
class LOCKSTEP_API Cli {
 public:
  Cli(CommandLine command_line, Program& program);

  /// The verb given, or the program's first one.
  const std::string& verb() const;

  /// Program::trainer, or `defaults`, with everything applied that the user set.
  /// @throws ConfigError
  TrainerOptions trainer() const;
  TrainerOptions trainer(TrainerOptions defaults) const;

  /// The same for Program::fabric, which must be set.
  /// @throws ConfigError
  FabricOptions fabric() const;
  FabricOptions fabric(FabricOptions defaults) const;

 private:
  void print_if_asked(const std::string& config_yaml) const;

  CommandLine command_line_;
  Program& program_;
  RunOptions run_;
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
LOCKSTEP_API int run(int argc, char** argv, const std::function<void(Cli&)>& body);

}  // namespace lockstep
