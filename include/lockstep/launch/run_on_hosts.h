// `lockstep run --hostfile`: one job on several hosts, started from one of them, or from elsewhere.
//
// Each host is reached by one remote shell, the system's ssh, which executes `lockstep node` there. What that
// is to do comes over its stdin, so that nothing need be quoted for a shell and no secret is in a list of
// processes. Once all hosts have answered, all become `lockstep run`; before that no rank is started. From
// then on stdin brings signals, and its end is the end of all ranks there; stderr brings the first failure.
// Where ranks may be started anew, the launchers meet at a rendezvous on the first host, whose token is new
// for each job and comes over stdin, too. So they do where the job can do without some of its hosts.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/launch/host_file.h>
#include <lockstep/launch/launch_options.h>

namespace lockstep {

/// A program that executes a command on another host, called as ssh is: options, host, command.
struct RemoteShell {
  std::string program = "ssh";              ///< what reaches a host
  std::vector<std::string> arguments = {};  ///< of the user; before ours, as ssh takes the first of two
  int port = 0;                             ///< 0: the program's own choice
};

/// What to run, and where.
struct HostsOptions {
  std::vector<Host> hosts = {};  ///< rank 0 is on the first one; as many ranks on each as it has slots
  std::vector<std::string> command = {};  ///< program and arguments
  std::vector<std::string> run_flags =
      {};  ///< flags of `lockstep run` for each host, beside those of its place; `max_restarts` among them
  int max_restarts = 0;  ///< times that all ranks of all hosts are started anew after one has failed, >= 0
  /// Hosts with which the job goes on when others are lost, at no cost of a restart: 1 to all; 0: it ends
  /// with the first one that is lost, as it does in any case without the first host.
  int min_hosts = 0;
  RemoteShell shell = {};                           ///< how hosts are reached
  std::string main_address = {};                    ///< empty: an address of the first host
  int main_port = 29'500;                           ///< where the launchers meet on the first host
  std::chrono::milliseconds start_timeout{60'000};  ///< until all hosts must have answered
  std::chrono::milliseconds grace = kHostGrace;     ///< that a host has to stop its ranks
};

/// Starts the job, passes on what its hosts print, with the host's name before each line, and signals the
/// other way; names the first failure with its host; leaves nobody behind on any host, also when it is killed
/// itself. Variables that go along are those of exported_variables(). Blocks until all hosts are done.
/// @returns 0; the exit code of the host that failed first; 130 and 143 after SIGINT and SIGTERM
/// @throws ConfigError when there is no such remote shell, or a file of variables is malformed
/// @throws Error when no process can be started
LOCKSTEP_API int run_on_hosts(const HostsOptions& options);

/// `lockstep node`, the other side. Returns only when it cannot become `lockstep run`.
/// @throws ConfigError when the folder is not there, or the other side is another version
/// @throws Error when stdin brings something else
LOCKSTEP_API int become_node();

/// Beginnings of the names of variables that go along: those of libraries for communication, threads and
/// tracking. DeepSpeed's EXPORT_ENVS and more.
LOCKSTEP_API std::span<const std::string_view> exported_prefixes();

/// Variables of this process that go along, then those of `.deepspeed_env` and `.lockstep_env` in the home
/// folder and in `folder`, of which later ones replace earlier ones. Lines of these files are NAME=VALUE;
/// empty lines and those that begin with `#` are skipped.
/// @throws ConfigError naming file:line and text
LOCKSTEP_API std::map<std::string, std::string> exported_variables(const std::filesystem::path& folder);

/// Only what the files say. @throws ConfigError as above
LOCKSTEP_API std::map<std::string, std::string> variables_of_files(const std::filesystem::path& folder);

}  // namespace lockstep
