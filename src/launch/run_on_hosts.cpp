#include <lockstep/launch/run_on_hosts.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/shell_word.h>
#include <lockstep/base/version.h>

#include "launch/command.h"
#include "launch/posix.h"
#include "launch/rank_process.h"
#include "launch/remote_host.h"
#include "launch/remote_launcher.h"
#include "rendezvous/addresses.h"
#include "rendezvous/frames.h"

namespace lockstep::launch {
namespace {

// The remote shell's arguments that make it execute `program node` on `host`, beginning with its own name.
std::vector<std::string> remote_command(const RemoteShell& shell, const std::string& host,
                                        const std::string& program) {
  std::vector<std::string> words{shell.program};
  words.insert(words.end(), shell.arguments.begin(), shell.arguments.end());
  for (const char* option :
       {"BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=10", "ServerAliveCountMax=3"})
    words.insert(words.end(), {"-o", option});
  if (shell.port != 0) words.insert(words.end(), {"-p", std::to_string(shell.port)});
  words.insert(words.end(), {host, "exec " + shell_word(program) + " node"});
  return words;
}

}  // namespace
}  // namespace lockstep::launch

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) launch::throw_errno("cannot make a pipe to a host");
    reader = UniqueFd(ends[0]);
    writer = UniqueFd(ends[1]);
  }
  UniqueFd reader, writer;
};

// Where a node stands in the job.
struct Place {
  std::size_t node = 0;
  int first_rank = 0;
  int world_size = 0;
  std::string main_address = {};
};

// Rendezvous options of an elastic job: at first all hosts join, unless one is lost meanwhile. Lost hosts do
// not come back later, so that the remaining ones need not wait.
constexpr auto kElasticConf = "first_call_timeout=30,last_call_timeout=1,is_host=";

// Whether the job can do without some of its hosts.
bool is_elastic(const HostsOptions& options) { return options.min_hosts > 0 && options.hosts.size() > 1; }

// Whether the launchers of the hosts need a rendezvous.
bool meet(const HostsOptions& options) {
  return is_elastic(options) || (options.max_restarts > 0 && options.hosts.size() > 1);
}

std::vector<std::string> arguments_of(const HostsOptions& options, const Place& place) {
  const auto& host = options.hosts[place.node];
  std::vector<std::string> words{"run", "--tied-to-stdin"};
  const auto add = [&](const char* flag, const std::string& value) {
    words.insert(words.end(), {flag, value});
  };
  const auto num_hosts = std::to_string(options.hosts.size());
  add("--nproc-per-node", std::to_string(host.slots.size()));
  if (is_elastic(options)) {
    add("--nnodes", std::to_string(options.min_hosts) + ":" + num_hosts);
    add("--rdzv-backend", "c10d");
    add("--rdzv-endpoint",
        rendezvous::TcpEndpoint{.host = place.main_address, .port = options.main_port}.text());
    add("--rdzv-conf", kElasticConf + std::string(place.node == 0 ? "true" : "false"));
  } else {
    add("--nnodes", num_hosts);
    add("--node-rank", std::to_string(place.node));
    add("--master-addr", place.main_address);
    add("--master-port", std::to_string(options.main_port));
    if (meet(options) && place.node == 0) add("--rdzv-conf", "is_host=true");
  }
  if (!meet(options)) {
    add("--first-rank", std::to_string(place.first_rank));
    add("--world-size", std::to_string(place.world_size));
  }
  words.insert(words.end(), options.run_flags.begin(), options.run_flags.end());
  words.insert(words.end(), options.command.begin(), options.command.end());
  return words;
}

std::string new_token() {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : rendezvous::random_bytes(rendezvous::kChallengeBytes))
    text.append({kDigits[byte >> 4], kDigits[byte & 15]});
  return text;
}

std::vector<std::string> encoded_payloads(const HostsOptions& options) {
  const auto folder = fs::current_path();
  auto variables = exported_variables(folder);
  if (meet(options)) variables["LOCKSTEP_JOB_TOKEN"] = new_token();
  Place place{.main_address = options.main_address.empty()
                                  ? launch::address_of_host(options.hosts.front().name)
                                  : options.main_address};
  for (const auto& host : options.hosts) place.world_size += static_cast<int>(host.slots.size());
  std::vector<std::string> payloads;
  for (const auto& host : options.hosts) {
    launch::RemoteCommandPayload payload{
        .version = kVersion, .directory = folder.string(), .variables = variables};
    if (!host.has_all_slots) payload.variables["CUDA_VISIBLE_DEVICES"] = visible_devices(host);
    payload.arguments = arguments_of(options, place);
    payloads.push_back(encode(payload));
    place.first_rank += static_cast<int>(host.slots.size());
    ++place.node;
  }
  return payloads;
}

// The plan of the remote shell of each host. It runs in its own session, so that signals of a terminal do not
// reach it.
std::vector<launch::RankPlan> plan_shells(const HostsOptions& options) {
  std::vector<launch::RankPlan> plans;
  for (std::size_t i = 0; i < options.hosts.size(); ++i) {
    const int number = static_cast<int>(i);
    plans.push_back({.rank = number, .local_rank = number, .name = "host-" + std::to_string(i)});
    plans.back().leads_session = true;
  }
  return plans;
}

std::vector<launch::ExecImage> plan_images(const HostsOptions& options,
                                           const std::vector<launch::RankPlan>& plans) {
  const auto shell = launch::find_program(options.shell.program);
  const auto self = fs::read_symlink("/proc/self/exe").string();
  std::vector<launch::ExecImage> images;
  for (std::size_t i = 0; i < plans.size(); ++i)
    images.emplace_back(plans[i], shell, launch::remote_command(options.shell, options.hosts[i].name, self));
  return images;
}

std::vector<std::string> prefixes_of(const HostsOptions& options) {
  std::vector<std::string> prefixes;
  for (const auto& host : options.hosts) prefixes.push_back(host.name + ": ");
  return prefixes;
}

}  // namespace

int run_on_hosts(const HostsOptions& options) {
  const auto payloads = encoded_payloads(options);
  const auto plans = plan_shells(options);
  const auto images = plan_images(options, plans);
  launch::ignore_refused_writes();  // the loss of a host is noticed by the end of its remote shell
  launch::SignalScope signals;
  launch::OutputRelay relay(prefixes_of(options));
  std::vector<Pipe> pipes(options.hosts.size());
  auto shells = launch::start_ranks(plans, signals, [&](const launch::RankPlan& plan) {
    const auto host = static_cast<std::size_t>(plan.local_rank);
    ::dup2(pipes[host].reader.get(), STDIN_FILENO);
    relay.become_output_of(plan.local_rank);
    launch::heed_refused_writes();
    images[host].execute();
    ::dprintf(STDERR_FILENO, "cannot execute %s: %s\n", options.shell.program.c_str(), std::strerror(errno));
    ::_exit(launch::kExitCannotExecute);
  });
  relay.close_writers();
  std::vector<launch::RemoteHost> hosts;
  for (std::size_t i = 0; i < shells.size(); ++i)
    hosts.emplace_back(options.hosts[i].name, std::move(shells[i]), std::move(pipes[i].writer), payloads[i]);
  pipes.clear();
  launch::RemoteJob job(std::move(hosts), relay, signals,
                        {.start = options.start_timeout, .grace = options.grace}, options.min_hosts);
  return job.run();
}

namespace {

constexpr int kNotWanted = 1;

void check_version(const std::string& version) {
  if (version == kVersion) return;
  throw ConfigError("launch", {.what = "this host has lockstep " + std::string(kVersion),
                               .expected = "lockstep " + version + ", as where the job was started"});
}

void go_to(const std::string& folder) {
  std::error_code failure;
  std::filesystem::current_path(folder, failure);
  if (!failure) return;
  throw ConfigError("launch", {.what = "folder " + folder,
                               .expected = "the folder in which the job was started, on this host, too",
                               .got = failure.message()});
}

void write_to_starter(const std::string& text) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

// Any other line, or the end of stdin, means that the job has ended before it began.
bool is_told_to_go() {
  std::string line;
  for (char letter = 0; ::read(STDIN_FILENO, &letter, 1) == 1 && letter != '\n';) line += letter;
  return line == launch::kGo;
}

[[noreturn]] void become(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "lockstep");
  std::vector<char*> argv;
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  ::execv("/proc/self/exe", argv.data());
  launch::throw_errno("cannot execute lockstep run");
}

}  // namespace

int become_node() {
  const auto payload = launch::read_payload(STDIN_FILENO);
  check_version(payload.version);
  go_to(payload.directory);
  for (const auto& [name, value] : payload.variables) env::set(name, value);
  write_to_starter(encode(launch::NodeReport{.is_ready = true}));
  if (!is_told_to_go()) return kNotWanted;
  become(payload.arguments);
}

namespace {

using Variables = std::map<std::string, std::string>;

constexpr std::array<std::string_view, 15> kExportedPrefixes = {
    "FI_",      "GLOO_", "KMP_",      "LOCKSTEP_", "MKL_",     "MLFLOW", "MV2", "NCCL_",
    "NUMEXPR_", "OMP_",  "OPENBLAS_", "PYTHON",    "PYTORCH_", "TORCH",  "UCX"};
constexpr std::array kExported = {"LD_LIBRARY_PATH", "PATH", "VIRTUAL_ENV"};
// Variables about this host or this process, which are not exported.
constexpr std::array<std::string_view, 10> kPrivate = {
    "LOCKSTEP_JOB_TOKEN",   "LOCKSTEP_LAUNCHED",      "LOCKSTEP_LAUNCHER_START_NS", "LOCKSTEP_LISTEN_FD",
    "LOCKSTEP_ROUND",       "LOCKSTEP_START_NS",      "LOCKSTEP_STATUS_FD",         "LOCKSTEP_STORE",
    "LOCKSTEP_STORE_SCOPE", "LOCKSTEP_STORE_TOKEN_FD"};
constexpr std::array kFiles = {".deepspeed_env", ".lockstep_env"};

void add_line(Variables& variables, const std::string& line, const std::string& file, int number) {
  if (line.empty() || line.front() == '#') return;
  const auto equals = line.find('=');
  if (equals == 0 || equals == std::string::npos || line.find('\0') != std::string::npos)
    throw ConfigError("hosts", {.what = "a line of the file of variables",
                                .expected = "NAME=VALUE",
                                .got = "\"" + line + "\"",
                                .where = file + ":" + std::to_string(number)});
  variables[line.substr(0, equals)] = line.substr(equals + 1);
}

void add_file(Variables& variables, const std::filesystem::path& file) {
  std::ifstream stream(file);
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    if (line.ends_with('\r')) line.pop_back();
    add_line(variables, line, file.string(), ++number);
  }
}

}  // namespace

std::span<const std::string_view> exported_prefixes() { return kExportedPrefixes; }

std::map<std::string, std::string> variables_of_files(const std::filesystem::path& folder) {
  Variables variables;
  for (const char* name : kFiles) {
    if (const auto home = env::get("HOME")) add_file(variables, std::filesystem::path(*home) / name);
    add_file(variables, folder / name);
  }
  return variables;
}

std::map<std::string, std::string> exported_variables(const std::filesystem::path& folder) {
  Variables variables;
  for (const auto prefix : kExportedPrefixes) variables.merge(env::with_prefix(prefix));
  std::erase_if(variables, [](const auto& variable) {
    return std::ranges::find(kPrivate, variable.first) != kPrivate.end() ||
           variable.first.starts_with("TORCHELASTIC_");
  });
  for (const char* name : kExported)
    if (auto value = env::get(name)) variables[name] = std::move(*value);
  for (auto& [name, value] : variables_of_files(folder)) variables[name] = std::move(value);
  return variables;
}

}  // namespace lockstep
