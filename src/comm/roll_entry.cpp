#include "comm/roll_entry.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <sstream>

#include "base/system.h"

namespace lockstep::detail {
namespace {

// Empty: not known, as where /proc is not mounted.
std::string own_pid_space() {
  std::error_code failure;
  return std::filesystem::read_symlink("/proc/self/ns/pid", failure);
}

}  // namespace

std::string RollEntry::whereabouts() const { return host + ", pid " + std::to_string(pid); }

bool RollEntry::is_gone() const {
  const auto own = own_pid_space();
  return host == host_name() && pid_space == own && !own.empty() && ::kill(pid, 0) != 0 && errno == ESRCH;
}

RollEntry own_entry(const std::map<std::string, std::string>& settings) {
  return {.host = host_name(), .pid = getpid(), .pid_space = own_pid_space(), .settings = settings};
}

std::string to_text(const RollEntry& entry) {
  auto text = entry.host + '\n' + std::to_string(entry.pid) + ' ' + entry.pid_space + '\n';
  for (const auto& [name, value] : entry.settings) text += name + '=' + value + '\n';
  return text;
}

RollEntry roll_entry_from_text(const std::string& text) {
  std::istringstream stream(text);
  RollEntry entry;
  std::getline(stream, entry.host);
  stream >> entry.pid;
  stream.ignore();  // one blank: what follows may be empty
  std::getline(stream, entry.pid_space);
  for (std::string line; std::getline(stream, line);) {
    const auto equals = line.find('=');
    if (equals != std::string::npos) entry.settings[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return entry;
}

}  // namespace lockstep::detail
