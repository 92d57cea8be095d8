#include "run_verb.h"

#include <algorithm>
#include <fstream>

#include <lockstep/base/env.h>
#include <lockstep/launch/launch.h>

#include "either_name.h"
#include "number_checks.h"
#include "refusal.h"

namespace {

int positive(const std::string& flag, const std::string& text, const std::string& expected) {
  const auto number = lockstep::OptionType<int>::parse(text);
  if (!number || *number < 1) refuse_value(flag, expected, text);
  return *number;
}

int ranks_per_node(const std::string& text) {
  const int devices = text == "auto" || text == "gpu" ? lockstep::usable_nvidia_devices() : 0;
  if (text == "gpu" && devices == 0)
    refuse_value(
        "--nproc-per-node", "a machine with an NVIDIA device that this process may use", text,
        "nvidia-smi lists devices, CUDA_VISIBLE_DEVICES hides some; auto takes processors where there is "
        "none");
  if (devices > 0) return devices;
  if (text == "auto" || text == "cpu") return lockstep::usable_processors();
  return positive("--nproc-per-node", text, "a number >= 1, auto, gpu or cpu");
}

std::set<int> ranks_in(const std::string& text) {
  std::set<int> ranks;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find(',', begin), text.size());
    const auto rank = lockstep::OptionType<int>::parse(text.substr(begin, end - begin));
    if (!rank || *rank < 0) refuse_value("--local-ranks-filter", "local ranks, such as 0,1", text);
    ranks.insert(*rank);
    begin = end + 1;
  }
  return ranks;
}

void refuse_absent_ranks(const lockstep::ProgramOptions& options, const RunFlags& flags) {
  const auto check = [&](const std::string& flag, int rank, const std::string& text) {
    if (rank >= options.launch.nprocs)
      refuse_value(flag, "local ranks 0.." + std::to_string(options.launch.nprocs - 1), text);
  };
  const auto& filter = options.output.local_ranks_filter;
  check("--redirects", options.output.redirects.last_rank(), flags.redirects);
  check("--tee", options.output.tee.last_rank(), flags.tee);
  check("--local-ranks-filter", filter.empty() ? -1 : *filter.rbegin(), flags.local_ranks_filter);
}

void check_place(const lockstep::ProgramOptions& options) {
  const bool is_placed = options.first_rank >= 0;
  if (is_placed != (options.world_size > 0))
    refuse_value(is_placed ? "--first-rank" : "--world-size",
                 "both of --first-rank and --world-size, or neither",
                 std::to_string(is_placed ? options.first_rank : options.world_size));
  if (is_placed && options.first_rank + options.launch.nprocs > options.world_size)
    refuse_value("--world-size",
                 "at least --first-rank + --nproc-per-node = " +
                     std::to_string(options.first_rank + options.launch.nprocs),
                 std::to_string(options.world_size));
}

// Another one at each call; empty where the kernel gives none. Source: random(4).
std::string random_uuid() {
  std::ifstream file("/proc/sys/kernel/random/uuid");
  std::string uuid;
  std::getline(file, uuid);
  return uuid;
}

// It becomes part of a folder's name, and of a job without a token it is the key.
// A job of one node that is given no name gets its own, as under torchrun: two of a machine are told apart.
std::string job_name_of(const RunFlags& flags, const lockstep::ProgramOptions& options) {
  const bool is_alone = options.first_rank < 0 && !options.rendezvous && options.launch.num_nodes == 1;
  const bool is_named = flags.rdzv_id != RunFlags().rdzv_id || flags.rdzv.master_port;
  if (const auto own = random_uuid(); is_alone && !is_named && !own.empty()) return own;
  constexpr std::size_t kMost = 240;
  if (flags.rdzv_id.empty() || flags.rdzv_id.size() > kMost)
    refuse_value("--rdzv-id", "a name of 1 to " + std::to_string(kMost) + " bytes",
                 flags.rdzv_id.size() > kMost ? flags.rdzv_id.substr(0, 20) + "..." : "");
  return flags.rdzv_id;
}

std::vector<std::string> command_of(const RunFlags& flags) {
  auto command = flags.command;
  if (flags.module && flags.no_python)
    refuse_value("--module", "a Python module, without --no-python", "--no-python");
  if (flags.module && command.empty()) refuse_value("--module", "the name of a Python module", "");
  if (flags.module) command.insert(command.begin(), {"python3", "-u", "-m"});
  return command;
}

}  // namespace

CLI::App* add_run(CLI::App& app, RunFlags& flags) {
  auto* verb =
      app.add_subcommand("run", "Start PROGRAM [ARGUMENTS...] as the ranks of this node, as torchrun does");
  verb->prefix_command();
  verb->footer(
      "Flags that torchrun has, too, and that are not given, are taken from its variables: PET_NNODES is "
      "--nnodes.");
  flags.verb = verb;
  verb->add_option(either("--nproc-per-node"), flags.nproc_per_node, "Ranks: a number, auto, gpu or cpu")
      ->capture_default_str();
  add_rdzv_flags(*verb, flags.rdzv);
  verb->add_option(either("--max-restarts"), flags.max_restarts,
                   "Times to start all ranks anew after a failure")
      ->check(whole_number(0));
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
      ->check(number_of_seconds(0))
      ->capture_default_str();
  verb->add_option(either("--run-dir"), flags.run_dir, "Folder for ranks.json and failure.json");
  verb->add_flag("-m,--module", flags.module, "PROGRAM is a Python module");
  verb->add_flag(either("--no-python"), flags.no_python, "PROGRAM is executed itself, be it *.py");
  verb->add_option(either("--first-rank"), flags.first_rank,
                   "Of this node, where nodes have different numbers of ranks")
      ->check(whole_number(0));
  verb->add_option(either("--world-size"), flags.world_size, "Of the job, with --first-rank")
      ->check(whole_number(1));
  verb->add_flag(either("--tied-to-stdin"), flags.tied_to_stdin,
                 "End all when stdin ends; ranks get /dev/null");
  add_host_flags(*verb, flags.hosts);
  add_binding_flags(*verb, flags.binding);
  return verb;
}

void separate_empty_values(const CLI::App& verb, std::vector<std::string>& words) {
  if (words.empty() || words.front() != verb.get_name()) return;
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "--" || (verb.get_prefix_command() && !words[i].starts_with('-'))) return;
    const bool is_empty = words[i].starts_with("--") && words[i].ends_with('=');
    if (is_empty) words[i].pop_back();
    const auto* option = verb.get_option_no_throw(words[i]);
    const bool has_value = option != nullptr && option->get_expected_min() > 0;
    if (is_empty && has_value) words.insert(words.begin() + static_cast<std::ptrdiff_t>(i) + 1, "");
    if (is_empty && !has_value) words[i] += '=';
    if (has_value) ++i;
  }
}

void drop_dashes_before_program(const CLI::App& verb, std::vector<std::string>& words) {
  if (words.empty() || words.front() != verb.get_name()) return;
  for (std::size_t i = 1; i < words.size() && words[i].starts_with('-'); ++i) {
    if (words[i] == "--") {
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(i));
      return;
    }
    const auto* option = verb.get_option_no_throw(words[i]);
    if (option != nullptr && option->get_expected_min() > 0) ++i;  // its value may begin with a dash
  }
}

int run(RunFlags flags) {
  if (const auto exit_code = run_on_other_hosts(flags)) return *exit_code;
  lockstep::ProgramOptions options{.command = command_of(flags)};
  auto& launch = options.launch;
  launch.nprocs = ranks_per_node(flags.nproc_per_node);
  options.first_rank = flags.first_rank;
  options.world_size = flags.world_size;
  check_place(options);
  apply(flags.rdzv, options);
  launch.run_dir = flags.run_dir;
  launch.grace = std::chrono::milliseconds(static_cast<std::int64_t>(flags.shutdown_timeout_s * 1000));
  launch.interrupt_grace = launch.grace;
  options.output = {
      .log_dir = flags.log_dir,
      .redirects = value_of("--redirects", flags.redirects, lockstep::StreamChoice::parse(flags.redirects)),
      .tee = value_of("--tee", flags.tee, lockstep::StreamChoice::parse(flags.tee)),
      .local_ranks_filter = ranks_in(flags.local_ranks_filter),
      .role = flags.role};
  if (!flags.tied_to_stdin) refuse_absent_ranks(options, flags);
  options.run_id = job_name_of(flags, options);
  options.no_python = flags.no_python;
  options.max_restarts = flags.max_restarts;
  options.tied_to_stdin = flags.tied_to_stdin;
  options.binding = binding_of(flags.binding);
  return lockstep::run_program(options);
}
