// What the ways to start ranks are told: which ranks, how they are stopped, where they write to, and where
// the launchers of several nodes meet.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>
#include <lockstep/launch/binding.h>

namespace lockstep {

// Where the ranks of `lockstep run` write to. Names, numbers and defaults are torchrun's.

/// Which of stdout (1) and stderr (2), or both (3), or none (0), of which ranks.
class LOCKSTEP_API StreamChoice {
 public:
  StreamChoice() = default;
  /// `3` for all ranks, or `0:3,1:1` by local rank. The error says what would be accepted.
  static Expected<StreamChoice> parse(std::string_view text);

  /// Whether standard output of the rank is meant.
  bool has_stdout(int local_rank) const { return (of(local_rank) & 1) != 0; }
  /// Whether standard error of the rank is meant.
  bool has_stderr(int local_rank) const { return (of(local_rank) & 2) != 0; }
  /// The largest local rank that is named; -1: none is.
  int last_rank() const { return by_rank_.empty() ? -1 : by_rank_.rbegin()->first; }
  /// Whether nothing is meant.
  bool is_none() const { return all_ == 0 && by_rank_.empty(); }

 private:
  int of(int local_rank) const;

  int all_ = 0;
  std::map<int, int> by_rank_;
};

/// By default ranks write to the launcher's own stdout and stderr.
struct OutputOptions {
  std::filesystem::path log_dir =
      {};                       ///< gets RUN/attempt_N/LOCAL_RANK/{stdout,stderr}.log; empty: a temporary one
  StreamChoice redirects = {};  ///< to files instead
  StreamChoice tee = {};        ///< to files and, with a prefix on each line, here
  std::set<int> local_ranks_filter = {};  ///< only these are shown here; empty: all
  std::string role = "default";           ///< the prefix is `[ROLE RANK]:`, without the blank
};

// How the launchers of several nodes find each other and agree who takes part.

/// The longest token, in bytes.
inline constexpr std::size_t kMostTokenBytes = 4096;

/// One launcher hosts the rendezvous at host:port; all of them join it, one per node. Sources: torchrun's
/// --nnodes, --rdzv-endpoint and --rdzv-conf, whose names and defaults these are.
struct RendezvousOptions {
  int min_nodes = 1;      ///< with fewer, the job does not go on
  int max_nodes = 1;      ///< more wait until one leaves
  bool is_static = true;  ///< node_rank of LaunchOptions holds, and node 0 hosts; else who can listen there
  std::string host = {};  ///< name or address of the node that hosts
  int port = 29'400;      ///< TCP port there
  std::string local_address = {};  ///< where other nodes reach this one; empty: the one that it calls from
  std::string token = {};          ///< secret of the job; empty: its run_id, which is none

  std::chrono::milliseconds join_timeout = std::chrono::seconds(600);  ///< until min_nodes are there
  /// From then on until those that may come as well, or that were lost, are waited for no longer.
  std::chrono::milliseconds last_call_timeout = std::chrono::seconds(30);
  std::optional<std::chrono::milliseconds> first_call_timeout =
      {};  ///< the same before the first round, if another
  std::chrono::milliseconds close_timeout = std::chrono::seconds(30);  ///< for the others to hear of the end
  std::chrono::milliseconds read_timeout = std::chrono::seconds(60);   ///< for an answer of the host
  std::chrono::milliseconds keep_alive_interval = std::chrono::seconds(5);  ///< between signs of life
  int keep_alive_max_attempt = 3;    ///< as many missing ones, and a node is lost
  std::optional<bool> is_host = {};  ///< whether this node hosts; without: whoever can listen there
};

/// Host and port of HOST[:PORT]; an IPv6 address before a port is in brackets.
/// @returns what is accepted, where `text` is none
LOCKSTEP_API Expected<std::pair<std::string, int>> parse_rendezvous_endpoint(const std::string& text,
                                                                             int default_port);

/// The time between asking to stop and killing: of ranks, after another one's failure.
inline constexpr std::chrono::milliseconds kFailureGrace{500};
/// The same of ranks after SIGINT or SIGTERM to their supervisor.
inline constexpr std::chrono::milliseconds kInterruptGrace{5000};
/// The same of the ranks of `lockstep run`, after either: torchrun's default.
inline constexpr std::chrono::milliseconds kProgramGrace{30'000};
/// The same of the launchers on other hosts, which have ranks to stop.
inline constexpr std::chrono::milliseconds kHostGrace{30'000};
/// What they are given beyond the grace of their ranks, where that was chosen.
inline constexpr std::chrono::milliseconds kMoreHostGrace{5000};

/// Which ranks to start and how to stop them.
struct LaunchOptions {
  int nprocs = 1;                          ///< ranks on this node, >= 1
  int node_rank = 0;                       ///< index of this node, 0 to num_nodes - 1
  int num_nodes = 1;                       ///< nodes of the job, each with nprocs ranks
  std::string main_address = "127.0.0.1";  ///< host of rank 0
  int main_port = 0;                       ///< port of rank 0; 0: a free one (only with one node)
  std::filesystem::path run_dir = {};      ///< gets ranks.json and failure.json; empty: nothing is written
  std::chrono::milliseconds grace =
      kFailureGrace;  ///< after a failure: from SIGTERM to SIGKILL of the other ranks
  /// After SIGINT or SIGTERM to the supervisor: from passing it on to SIGKILL. A second one kills at once.
  std::chrono::milliseconds interrupt_grace = kInterruptGrace;
  bool print_failure = true;  ///< names the first failure in one line on stderr
};

/// What to run, and how often anew.
struct ProgramOptions {
  std::vector<std::string> command = {};  ///< program and arguments; `*.py` is run by python3 -u
  LaunchOptions launch = {};              ///< main_port 0: a free one, for each attempt
  OutputOptions output = {};              ///< where output of ranks goes
  BindingOptions binding = {};            ///< then OMP_NUM_THREADS is a rank's cores, unless it is set
  std::string run_id = "none";            ///< what the ranks know the job by
  bool no_python = false;                 ///< `*.py` is executed itself, too
  int max_restarts = 0;        ///< times that all ranks are started anew after one has failed, >= 0
  int first_rank = -1;         ///< of this node; -1: all nodes have as many ranks
  int world_size = 0;          ///< of the job; 0: all nodes have as many ranks
  bool tied_to_stdin = false;  ///< ranks get /dev/null; when stdin ends, all end at once
  /// Where the launchers of several nodes meet. Then num_nodes and node_rank are what the rendezvous gives,
  /// and rank 0 gets a free port. Empty: this node is alone.
  std::optional<RendezvousOptions> rendezvous = {};
};

}  // namespace lockstep
