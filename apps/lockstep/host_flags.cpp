#include "host_flags.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <sstream>

#include <lockstep/base/env.h>
#include <lockstep/base/log.h>
#include <lockstep/launch/run_on_hosts.h>

#include "number_checks.h"
#include "refusal.h"
#include "run_verb.h"

namespace {

using lockstep::Host;

// The host file answers these.
constexpr std::array kAnswered = {"nnodes",       "node-rank",     "nproc-per-node", "standalone",
                                  "rdzv-backend", "rdzv-endpoint", "rdzv-conf",      "local-addr",
                                  "first-rank",   "world-size",    "tied-to-stdin"};
// These are for the host on which the job is started.
constexpr std::array kLocal = {"hostfile",    "include",     "exclude",          "force-multi",
                               "ssh",         "ssh-port",    "ssh-args",         "ssh-timeout",
                               "master-addr", "master-port", "elastic-training", "min-elastic-nodes"};

bool is_one_of(const auto& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

bool is_this_host(const std::string& name) {
  std::array<char, 256> own{};
  ::gethostname(own.data(), own.size() - 1);
  const std::string full = own.data();
  return name == "localhost" || name == "127.0.0.1" || name == full || name == full.substr(0, full.find('.'));
}

std::string name_of(const CLI::Option& option) {
  return option.get_lnames().empty() ? "" : option.get_lnames().front();
}

lockstep::RemoteShell shell_of(const HostFlags& flags) {
  const auto by_variable = lockstep::env::get("LOCKSTEP_SSH").value_or("ssh");
  return {.program = flags.ssh.empty() ? by_variable : flags.ssh,
          .arguments = words_of(flags.ssh_args),
          .port = flags.ssh_port};
}

// One host alone is taken for this one, as DeepSpeed does.
bool needs_remote_shell(const std::vector<Host>& hosts, const HostFlags& flags) {
  if (hosts.size() > 1 || flags.force_multi) return true;
  const auto& name = hosts.front().name;
  if (!is_this_host(name))
    lockstep::log_warning("the only host, " + name +
                          ", is taken for this one, as DeepSpeed does; --force-multi starts the job there");
  return false;
}

// What was given and belongs to every host.
std::vector<std::string> flags_for_hosts(const CLI::App& verb) {
  std::vector<std::string> words;
  for (const auto* option : verb.get_options()) {
    const auto name = name_of(*option);
    if (option->count() == 0 || is_one_of(kLocal, name)) continue;
    words.push_back("--" + name);
    if (option->get_expected_max() > 0) words.push_back(option->results().back());
  }
  return words;
}

void refuse_answered(const RunFlags& flags) {
  for (const auto* option : flags.verb->get_options())
    if (option->count() > 0 && is_one_of(kAnswered, name_of(*option)))
      refuse_run("--" + name_of(*option), "no such flag: it cannot be combined with --hostfile",
                 "\"" + option->results().back() + "\"");
}

// A run on this host alone, with what the others would have been told.
void take_place_of(const Host& host, RunFlags& flags) {
  flags.nproc_per_node = std::to_string(host.slots.size());
  if (!host.has_all_slots) lockstep::env::set("CUDA_VISIBLE_DEVICES", lockstep::visible_devices(host));
  for (const auto& [name, value] : lockstep::variables_of_files(std::filesystem::current_path()))
    lockstep::env::set(name, value);
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

// 0: with all of them.
int min_hosts_of(const HostFlags& flags, std::size_t num_hosts) {
  const auto asked = flags.min_elastic_nodes;
  if (asked && !flags.elastic_training)
    refuse_run("--min-elastic-nodes", "--elastic-training as well", "\"" + std::to_string(*asked) + "\"");
  if (!flags.elastic_training) return 0;
  const int min = asked.value_or(1);
  if (min > static_cast<int>(num_hosts))
    refuse_run("--min-elastic-nodes", "1.." + std::to_string(num_hosts) + ", the number of hosts",
               "\"" + std::to_string(min) + "\"");
  return min;
}

lockstep::HostsOptions options_of(const RunFlags& flags, std::vector<Host> hosts, int min_hosts) {
  lockstep::HostsOptions options{.hosts = std::move(hosts),
                                 .command = flags.command,
                                 .run_flags = flags_for_hosts(*flags.verb),
                                 .max_restarts = flags.max_restarts,
                                 .min_hosts = min_hosts,
                                 .shell = shell_of(flags.hosts),
                                 .start_timeout = milliseconds(flags.hosts.ssh_timeout_s),
                                 .grace = milliseconds(flags.shutdown_timeout_s) + lockstep::kMoreHostGrace};
  if (flags.verb->count("--master-addr") > 0) options.main_address = flags.rdzv.master_addr;
  options.main_port = flags.rdzv.master_port.value_or(options.main_port);
  if (options.main_port == 0) refuse_run("--master-port", "1..65535, as all hosts have to know it", "0");
  return options;
}

std::vector<Host> hosts_of(const HostFlags& flags) {
  if (!flags.hostfile.empty())
    return lockstep::filter_hosts(lockstep::read_host_file(flags.hostfile), flags.include, flags.exclude);
  if (!flags.include.empty()) refuse_value("--include", "a host file, by --hostfile", flags.include);
  if (!flags.exclude.empty()) refuse_value("--exclude", "a host file, by --hostfile", flags.exclude);
  if (flags.elastic_training || flags.min_elastic_nodes)
    refuse_run(flags.elastic_training ? "--elastic-training" : "--min-elastic-nodes",
               "a host file, by --hostfile", "none");
  return {};
}

}  // namespace

void add_host_flags(CLI::App& verb, HostFlags& flags) {
  verb.add_option("--hostfile", flags.hostfile, "Hosts of the job: lines of HOST slots=N; over ssh");
  verb.add_option("-i,--include", flags.include, "Only these hosts and slots: HOST[:SLOT,...], joined by @");
  verb.add_option("-e,--exclude", flags.exclude, "All but these hosts and slots");
  verb.add_flag("--force-multi,--force_multi", flags.force_multi,
                "Over ssh, also where the host file has one host");
  verb.add_flag("--elastic-training,--elastic_training", flags.elastic_training,
                "Go on with the other hosts when one is lost");
  verb.add_option("--min-elastic-nodes,--min_elastic_nodes", flags.min_elastic_nodes,
                  "Hosts that are enough for that (default: 1)")
      ->check(whole_number(1));
  verb.add_option("--ssh", flags.ssh, "Program to call as ssh (default: LOCKSTEP_SSH, else ssh)");
  verb.add_option("--ssh-port,--ssh_port", flags.ssh_port, "Port of the hosts' ssh")
      ->check(whole_number(1, 65'535));
  verb.add_option("--ssh-args,--ssh_args", flags.ssh_args, "More arguments of ssh, in one word with blanks");
  verb.add_option("--ssh-timeout,--ssh_timeout", flags.ssh_timeout_s,
                  "Seconds until all hosts must have answered")
      ->check(number_of_seconds(0.001))
      ->capture_default_str();
}

std::optional<int> run_on_other_hosts(RunFlags& flags) {
  auto hosts = hosts_of(flags.hosts);
  if (hosts.empty()) return std::nullopt;
  refuse_answered(flags);
  const int min_hosts = min_hosts_of(flags.hosts, hosts.size());
  if (needs_remote_shell(hosts, flags.hosts))
    return lockstep::run_on_hosts(options_of(flags, std::move(hosts), min_hosts));
  take_place_of(hosts.front(), flags);
  return std::nullopt;
}
