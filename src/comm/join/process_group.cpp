#include "comm/join/process_group.h"

#include <atomic>
#include <charconv>
#include <exception>
#include <sstream>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/comm/init.h>
#include <lockstep/launch/join.h>

#include "base/host_name.h"
#include "cluster/variables.h"
#include "device/vector_math.h"

namespace lockstep {
namespace {

using detail::InitMethod;

std::atomic<void (*)()> exit_hook{nullptr};

constexpr auto kForms = "env://, tcp://HOST:PORT or file:///PATH, each with ?rank=R&world_size=N or without";

[[noreturn]] void refuse_method(const std::string& what, const std::string& got) {
  throw ConfigError("comm", {.what = "init_method: " + what, .expected = kForms, .got = '"' + got + '"'});
}

int parse_port(const std::string& port, const std::string& whole) {
  int number = 0;
  const auto [end, status] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (status != std::errc{} || end != port.data() + port.size() || number < 1 || number > 65535)
    refuse_method("the port number must be 1 to 65535", whole);
  return number;
}

void split_host_and_port(InitMethod& method, const std::string& authority, const std::string& whole) {
  const auto colon = authority.rfind(':');
  if (colon == std::string::npos || authority.ends_with(']'))
    refuse_method("the port number is missing", whole);
  method.port = parse_port(authority.substr(colon + 1), whole);
  method.host = authority.substr(0, colon);
  if (method.host.starts_with('[') && method.host.ends_with(']'))
    method.host = method.host.substr(1, method.host.size() - 2);
  if (method.host.empty()) refuse_method("the host is missing", whole);
  if (!may_be_host(method.host)) refuse_method("the host is none", whole);
}

void read_parameters(InitMethod& method, const std::string& query, const std::string& whole) {
  std::istringstream stream(query);
  for (std::string pair; std::getline(stream, pair, '&');) {
    const auto equals = pair.find('=');
    const auto name = pair.substr(0, equals);
    if (equals == std::string::npos || (name != "rank" && name != "world_size" && name != "use_libuv"))
      refuse_method("parameter " + name + " is not known", whole);
    method.parameters[name] = pair.substr(equals + 1);
  }
}

constexpr std::string_view kSetBy = "torchrun, ls::spawn() or yourself";

int parse_parameter(const std::string& name, const std::string& text) {
  int number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status == std::errc{} && end == text.data() + text.size()) return number;
  throw ConfigError(
      "comm", {.what = "init_method: parameter " + name, .expected = "an integer", .got = '"' + text + '"'});
}

[[noreturn]] void refuse_missing(const std::string& name) {
  throw ConfigError("comm", {.what = "init_process_group: " + name + " is missing",
                             .expected = "option " + name + ", or " + name + "=N in init_method",
                             .got = "neither",
                             .hint = "only init_method env:// reads it from the environment"});
}

// The rank, or the number of ranks: `name` in options and init_method, `variable` in the environment.
int number(std::optional<int> option, const InitMethod& method, const std::string& name,
           const std::string& variable, int min) {
  const auto parameter = method.parameters.find(name);
  const bool is_in_method = parameter != method.parameters.end();
  if (option && is_in_method) {
    throw ConfigError("comm", {.what = "init_process_group: " + name + " is given twice",
                               .expected = "one of them",
                               .got = "option " + std::to_string(*option) + " and " + parameter->second +
                                      " in init_method"});
  }
  if (option) return *option;
  if (is_in_method) return parse_parameter(name, parameter->second);
  if (method.scheme != "env") refuse_missing(name);
  return cluster::require_int({.name = variable, .set_by = kSetBy, .min = min, .max = cluster::kMaxRanks});
}

std::string require_address() {
  const auto address = env::get("MASTER_ADDR").value_or("");
  if (!address.empty()) return address;
  throw ConfigError("comm", {.what = "environment variable MASTER_ADDR",
                             .expected = "the host name or address of rank 0",
                             .got = "unset",
                             .hint = "it is set by " + std::string(kSetBy)});
}

int require_port() {
  return cluster::require_int({.name = "MASTER_PORT", .set_by = kSetBy, .min = 1, .max = cluster::kMaxPort});
}

CommOptions comm_options(const ProcessGroupOptions& options, const InitMethod& method) {
  CommOptions comm{.backend = options.backend,
                   .main_address = method.host,
                   .main_port = method.port,
                   .rank = number(options.rank, method, "rank", "RANK", 0),
                   .world_size = number(options.world_size, method, "world_size", "WORLD_SIZE", 1),
                   .timeout = options.timeout,
                   .reduction = options.reduction,
                   .peers = options.peers};
  if (method.scheme == "env") {
    comm.main_address = require_address();
    comm.main_port = require_port();
  }
  return comm;
}

}  // namespace

InitMethod detail::parse_init_method(const std::string& text) {
  const auto colon = text.find("://");
  InitMethod method{.scheme = text.substr(0, colon)};
  const bool is_known = method.scheme == "env" || method.scheme == "tcp" || method.scheme == "file";
  if (colon == std::string::npos || !is_known) refuse_method("the scheme is not known", text);
  auto rest = text.substr(colon + 3);
  const auto question = rest.find('?');
  if (question != std::string::npos) read_parameters(method, rest.substr(question + 1), text);
  rest.resize(std::min(question, rest.size()));
  if (method.scheme == "tcp") split_host_and_port(method, rest.substr(0, rest.find('/')), text);
  if (method.scheme == "env" && !rest.empty()) refuse_method("env:// takes no address", text);
  if (method.scheme == "file") {
    if (!rest.starts_with('/') || rest.size() < 2) refuse_method("the path is missing or not absolute", text);
    method.path = rest;
  }
  return method;
}

void detail::set_process_group_exit_hook(void (*hook)()) { exit_hook = hook; }

ProcessGroup::ProcessGroup(const Communicator& communicator)
    : Communicator(communicator), exceptions_before_(std::uncaught_exceptions()) {}

ProcessGroup::ProcessGroup(ProcessGroup&& other) noexcept
    : Communicator(std::move(other)), exceptions_before_(other.exceptions_before_) {}

ProcessGroup& ProcessGroup::operator=(ProcessGroup&& other) noexcept {
  if (this == &other) return *this;
  leave();
  Communicator::operator=(std::move(other));
  return *this;
}

ProcessGroup::~ProcessGroup() { leave(); }

void ProcessGroup::leave() noexcept {
  const bool was_moved_from = group() == nullptr;
  if (was_moved_from) return;
  try {
    if (std::uncaught_exceptions() <= exceptions_before_) close();
  } catch (const std::exception&) {
    // Nobody is left to wait for.
  }
  if (auto* const hook = exit_hook.load()) hook();
}

ProcessGroup init_process_group(const ProcessGroupOptions& options) {
  if (env::get("LOCKSTEP_LAUNCHED")) join_launcher();
  detail::choose_vector_math();
  const auto method = detail::parse_init_method(options.init_method);
  auto comm = comm_options(options, method);
  if (method.scheme != "file") return ProcessGroup(init_communicator(comm));
  return ProcessGroup(init_communicator(comm, make_file_store(method.path, comm.world_size)));
}

}  // namespace lockstep
