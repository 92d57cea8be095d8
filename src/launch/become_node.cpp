// become_node(): the start of a launcher that the launcher of another host has started over a remote shell.
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/version.h>
#include <lockstep/launch/run_on_hosts.h>

#include "launch/posix.h"
#include "launch/remote_launcher.h"

namespace lockstep {
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

}  // namespace lockstep
