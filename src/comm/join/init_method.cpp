#include "comm/join/init_method.h"

#include <charconv>
#include <sstream>

#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

constexpr auto kForms = "env://, tcp://HOST:PORT or file:///PATH, each with ?rank=R&world_size=N or without";

[[noreturn]] void refuse(const std::string& what, const std::string& got) {
  throw ConfigError("comm", {.what = "init_method: " + what, .expected = kForms, .got = '"' + got + '"'});
}

int parse_port(const std::string& port, const std::string& whole) {
  int number = 0;
  const auto [end, status] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (status != std::errc{} || end != port.data() + port.size() || number < 1 || number > 65535)
    refuse("the port number must be 1 to 65535", whole);
  return number;
}

void split_host_and_port(InitMethod& method, const std::string& authority, const std::string& whole) {
  const auto colon = authority.rfind(':');
  if (colon == std::string::npos || authority.ends_with(']')) refuse("the port number is missing", whole);
  method.port = parse_port(authority.substr(colon + 1), whole);
  method.host = authority.substr(0, colon);
  if (method.host.starts_with('[') && method.host.ends_with(']'))
    method.host = method.host.substr(1, method.host.size() - 2);
  if (method.host.empty()) refuse("the host is missing", whole);
}

void read_parameters(InitMethod& method, const std::string& query, const std::string& whole) {
  std::istringstream stream(query);
  for (std::string pair; std::getline(stream, pair, '&');) {
    const auto equals = pair.find('=');
    const auto name = pair.substr(0, equals);
    if (equals == std::string::npos || (name != "rank" && name != "world_size" && name != "use_libuv"))
      refuse("parameter " + name + " is not known", whole);
    method.parameters[name] = pair.substr(equals + 1);
  }
}

}  // namespace

InitMethod parse_init_method(const std::string& text) {
  const auto colon = text.find("://");
  InitMethod method{.scheme = text.substr(0, colon)};
  const bool is_known = method.scheme == "env" || method.scheme == "tcp" || method.scheme == "file";
  if (colon == std::string::npos || !is_known) refuse("nobody knows how to meet there", text);
  auto rest = text.substr(colon + 3);
  const auto question = rest.find('?');
  if (question != std::string::npos) read_parameters(method, rest.substr(question + 1), text);
  rest.resize(std::min(question, rest.size()));
  if (method.scheme == "tcp") split_host_and_port(method, rest.substr(0, rest.find('/')), text);
  if (method.scheme == "env" && !rest.empty()) refuse("env:// takes no address", text);
  if (method.scheme == "file") {
    if (!rest.starts_with('/') || rest.size() < 2) refuse("the path is missing or not absolute", text);
    method.path = rest;
  }
  return method;
}

}  // namespace lockstep::detail
