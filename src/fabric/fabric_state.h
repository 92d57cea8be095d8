// The state of one Fabric.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <lockstep/deepspeed/config.h>
#include <lockstep/fabric/fabric_options.h>
#include <lockstep/optim/grad_norm.h>
#include <lockstep/precision/precision.h>
#include <lockstep/torch.h>

#include "fabric/connector.h"
#include "launch/run_directory_lock.h"
#include "strategy/trained_modules.h"

namespace lockstep::detail {

struct FabricState {
  explicit FabricState(FabricOptions chosen);

  FabricOptions options;
  std::optional<DeepSpeedConfig> deepspeed;  ///< where its strategy was chosen
  Connector connector;
  std::shared_ptr<Strategy> strategy;  ///< none where launch() must start the ranks
  std::shared_ptr<Precision> precision;
  bool launched = false;
  launch::RunDirectoryLock run_directory_lock;  ///< rank 0 has it

  TrainedModules modules;
  std::int64_t next_log_step = 0;

  /// How every optimizer step begins: as DeepSpeed's file says.
  GradientClip clip() const;
  /// Takes rank 0's run directory where this process did not know before that it is another rank. Collective
  /// there.
  void share_run_directory();
  /// Says what of DeepSpeed's file is the program's business here.
  void warn_of_what_programs_do() const;
  /// @throws ConfigError naming `call` when the ranks are not connected yet
  void require_launched(const char* call) const;
  /// @throws ConfigError when the module, or one of its parameters, is set up already
  void refuse_second_setup(const torch::nn::Module& module) const;
};

}  // namespace lockstep::detail
