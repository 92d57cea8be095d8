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

  /// Undoes what the environment changed outside itself; called once when the run is over.
  virtual void teardown();
};

}  // namespace lockstep
