// XlaEngine: the part of one module in the strategy Xla. Gradients are averaged when all of them are there.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/comm/communicator.h>
#include <lockstep/parallel/xla/xla.h>

#include "parallel/module_states.h"
#include "parallel/replica_check.h"
#include "parallel/xla/program_collectives.h"

namespace lockstep::detail {

class XlaEngine {
 public:
  /// Of a module on its device, whose states ranks hold alike. `in_program` may be null: gradients travel by
  /// the host then. Holds the module's tensors, not the module.
  XlaEngine(const torch::nn::Module& module, Communicator comm, const Xla& options,
            std::shared_ptr<const ProgramCollectives> in_program);
  ~XlaEngine();
  XlaEngine(const XlaEngine&) = delete;
  XlaEngine& operator=(const XlaEngine&) = delete;

  /// Before a backward that will average. Not Collective.
  /// @throws ConfigError naming what is no longer as it was at set-up
  void begin_backward();
  /// After it: gradients become their means over ranks. Collective.
  /// @throws CommError naming parameters that have no gradient; ConfigError for a sparse one
  void average_gradients();
  /// After the optimizer's step: buffers become rank 0's, the step's program is run, and now and then ranks
  /// compare parameters. Collective.
  void after_step();
  /// As Strategy::check_replicas(). Collective, blocking.
  void check_replicas();

  /// Compares the modules of ranks and gives all of them rank 0's states. Collective, blocking.
  /// @throws CollectiveMismatch naming the first parameter or buffer that differs
  static void make_equal(const torch::nn::Module& module, const Communicator& comm);

 private:
  XlaEngine(const torch::nn::Module& module, const ModuleStates& states, Communicator comm,
            const Xla& options, std::shared_ptr<const ProgramCollectives> in_program);
  std::vector<at::Tensor> gradients_to_average();
  std::vector<bool> used_by_a_rank() const;

  Communicator comm_;
  Xla options_;
  std::shared_ptr<const ProgramCollectives> in_program_;
  std::vector<NamedTensor> trained_;
  std::vector<at::Tensor> buffers_;
  ModuleLists lists_;
  WriteVersions versions_;
  ReplicaCheck replicas_;
};

/// Runs what was recorded for `device`; nothing where it is no device of XLA. Does not wait.
void end_xla_step(at::Device device);

}  // namespace lockstep::detail
