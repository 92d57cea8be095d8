#include "run_verb.h"

#include <algorithm>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/launch/run_program.h>

#include "either_name.h"

namespace {

using lockstep::ConfigError;
using lockstep::Expected;

[[noreturn]] void refuse(const std::string& flag, const std::string& expected, const std::string& got,
                         const std::string& hint = {}) {
  throw ConfigError("run", {.what = flag, .expected = expected, .got = "\"" + got + "\"", .hint = hint});
}

template <class T>
T value_of(const std::string& flag, const std::string& text, const Expected<T>& parsed) {
  if (!parsed) refuse(flag, parsed.error(), text);
  return *parsed;
}

int positive(const std::string& flag, const std::string& text, const std::string& expected) {
  const auto number = lockstep::OptionType<int>::parse(text);
  if (!number || *number < 1) refuse(flag, expected, text);
  return *number;
}

int ranks_per_node(const std::string& text) {
  if (text == "auto" || text == "cpu") return lockstep::usable_processors();
  if (text == "gpu")
    refuse("--nproc-per-node", "a number, auto or cpu", text, "CUDA is not built yet: docs/status.md");
  return positive("--nproc-per-node", text, "a number >= 1, auto or cpu");
}

std::set<int> ranks_in(const std::string& text) {
  std::set<int> ranks;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find(',', begin), text.size());
    const auto rank = lockstep::OptionType<int>::parse(text.substr(begin, end - begin));
    if (!rank || *rank < 0) refuse("--local-ranks-filter", "local ranks, such as 0,1", text);
    ranks.insert(*rank);
    begin = end + 1;
  }
  return ranks;
}

std::vector<std::string> command_of(const RunFlags& flags) {
  auto command = flags.command;
  if (!command.empty() && command.front().starts_with('-'))
    refuse("flags before the program", "those that lockstep run --help lists", command.front());
  if (flags.module && flags.no_python)
    refuse("--module", "a Python module, without --no-python", "--no-python");
  if (flags.module) command.insert(command.begin(), {"python3", "-u", "-m"});
  return command;
}

}  // namespace

CLI::App* add_run(CLI::App& app, RunFlags& flags) {
  auto* verb =
      app.add_subcommand("run", "Start PROGRAM [ARGUMENTS...] as the ranks of this node, as torchrun does");
  verb->prefix_command();
  verb->add_option(either("--nproc-per-node"), flags.nproc_per_node, "Ranks: a number, auto or cpu")
      ->capture_default_str();
  add_rdzv_flags(*verb, flags.rdzv);
  verb->add_option(either("--max-restarts"), flags.max_restarts,
                   "Times to start all ranks anew after a failure")
      ->check(CLI::NonNegativeNumber);
  verb->add_option(either("--rdzv-id"), flags.rdzv_id, "What the ranks know the job by")
      ->capture_default_str();
  verb->add_option("--role", flags.role, "Prefix of the ranks' lines")->capture_default_str();
  verb->add_option(either("--log-dir"), flags.log_dir,
                   "Folder for the output of ranks; empty: a temporary one");
  verb->add_option("-r,--redirects", flags.redirects,
                   "To files: 1 stdout, 2 stderr, 3 both, or RANK:NUMBER,...");
  verb->add_option("-t,--tee", flags.tee, "To files, and here with a prefix: as --redirects");
  verb->add_option(either("--local-ranks-filter"), flags.local_ranks_filter,
                   "Show the output of these ranks only: 0,1");
  verb->add_option(either("--shutdown-timeout"), flags.shutdown_timeout_s, "Seconds from SIGTERM to SIGKILL")
      ->capture_default_str();
  verb->add_option(either("--run-dir"), flags.run_dir, "Folder for ranks.json and failure.json");
  verb->add_flag("-m,--module", flags.module, "PROGRAM is a Python module");
  verb->add_flag(either("--no-python"), flags.no_python, "PROGRAM is executed itself, be it *.py");
  return verb;
}

int run(const RunFlags& flags) {
  lockstep::ProgramOptions options{.command = command_of(flags)};
  auto& launch = options.launch;
  launch.nprocs = ranks_per_node(flags.nproc_per_node);
  apply(flags.rdzv, options);
  launch.run_dir = flags.run_dir;
  if (!(flags.shutdown_timeout_s >= 0 && flags.shutdown_timeout_s <= 1e6))
    refuse("--shutdown-timeout", "0 to 1000000 seconds", std::to_string(flags.shutdown_timeout_s));
  launch.grace = std::chrono::milliseconds(static_cast<std::int64_t>(flags.shutdown_timeout_s * 1000));
  launch.interrupt_grace = launch.grace;
  options.output = {
      .log_dir = flags.log_dir,
      .redirects = value_of("--redirects", flags.redirects, lockstep::StreamChoice::parse(flags.redirects)),
      .tee = value_of("--tee", flags.tee, lockstep::StreamChoice::parse(flags.tee)),
      .local_ranks_filter = ranks_in(flags.local_ranks_filter),
      .role = flags.role};
  options.run_id = flags.rdzv_id;
  options.no_python = flags.no_python;
  options.max_restarts = flags.max_restarts;
  return lockstep::run_program(options);
}
