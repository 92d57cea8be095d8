// Who and where this process is, as told by whatever started it. Pure parsing: nothing here
// talks to another process. To teach lockstep another scheduler, derive ClusterEnvironment.
#pragma once

#include <optional>
#include <string>

#include <lockstep/base/export.h>

namespace lockstep {

/// How a launcher or scheduler tells its processes apart. Names and meaning are Lightning's
/// `ClusterEnvironment`. No member is collective or blocks.
class LOCKSTEP_API ClusterEnvironment {
 public:
  ClusterEnvironment() = default;
  ClusterEnvironment(const ClusterEnvironment&) = delete;
  ClusterEnvironment& operator=(const ClusterEnvironment&) = delete;
  virtual ~ClusterEnvironment();

  /// Short name for messages and options, such as "torchelastic".
  virtual std::string name() const = 0;

  /// True where someone else started all ranks, so that lockstep must start none.
  virtual bool creates_processes_externally() const = 0;

  /// Host name or address at which rank 0 can be reached by all ranks.
  virtual std::string main_address() const = 0;

  /// TCP port of rank 0 at main_address(), 1 to 65535.
  virtual int main_port() const = 0;

  /// Number of ranks in the job.
  virtual int world_size() const = 0;

  /// Tells the number of ranks. Ignored by environments that know it from outside.
  virtual void set_world_size(int size);

  /// This process's rank in the job: 0 to world_size() - 1.
  virtual int global_rank() const = 0;

  /// Tells this process's rank. Ignored by environments that know it from outside.
  virtual void set_global_rank(int rank);

  /// This process's rank among those of its node.
  virtual int local_rank() const = 0;

  /// Index of this node in the job.
  virtual int node_rank() const = 0;

  /// Number of ranks on this node; none where only the settings tell.
  virtual std::optional<int> local_world_size() const;

  /// Checks that the trainer's settings agree with how the ranks were started. Accepts all by default.
  /// @throws ConfigError naming both sides
  virtual void validate_settings(int num_devices, int num_nodes) const;

  /// Undoes what the environment changed outside itself. Called once in every process that was a rank, when
  /// its run is over: at the end of ls::run() or run_rank(), of a forked rank, or else of the process; after
  /// a failure, too, but for death by a signal. What it throws is a warning.
  virtual void teardown();
};

// What the environments have in common in which a launcher or scheduler started all ranks.

/// A rank's place in the job, and where all ranks meet.
struct RankPlace {
  int world_size = 1;                        ///< ranks of the job
  int global_rank = 0;                       ///< this rank, from 0
  int local_rank = 0;                        ///< this rank on its node, from 0
  int node_rank = 0;                         ///< this node, from 0
  std::optional<int> local_world_size = {};  ///< none where the variables do not tell
  std::string main_address = {};             ///< host of rank 0
  int main_port = 0;                         ///< port of rank 0
};

/// Each rank was told its place by variables, which are read once: later changes to them are not seen, and
/// the setters are ignored.
class LOCKSTEP_API ExternalEnvironment : public ClusterEnvironment {
 public:
  std::string name() const override;
  bool creates_processes_externally() const override;
  std::string main_address() const override;
  int main_port() const override;
  int world_size() const override;
  int global_rank() const override;
  int local_rank() const override;
  int node_rank() const override;
  std::optional<int> local_world_size() const override;
  /// @throws ConfigError unless num_devices * num_nodes ranks were started
  void validate_settings(int num_devices, int num_nodes) const override;

 protected:
  /// `started_by` is for messages, such as "torchrun".
  ExternalEnvironment(std::string name, std::string started_by, RankPlace place);

 private:
  std::string name_;
  std::string started_by_;
  RankPlace place_;
};

}  // namespace lockstep
