// The state of one Fabric.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <lockstep/fabric/fabric_options.h>
#include <lockstep/precision/precision.h>
#include <lockstep/torch.h>

#include "fabric/connector.h"

namespace lockstep::detail {

/// A model that was set up. Does not keep it alive.
struct FabricModule {
  std::weak_ptr<torch::nn::Module> module;
  torch::nn::Module* address = nullptr;
  int open_scopes = 0;  ///< of NoBackwardSync
};

struct FabricState {
  explicit FabricState(FabricOptions chosen);

  FabricOptions options;
  Connector connector;
  std::shared_ptr<Strategy> strategy;  ///< none where launch() must start the ranks
  std::shared_ptr<Precision> precision;
  bool launched = false;

  std::vector<std::shared_ptr<FabricModule>> modules;
  std::unordered_map<const at::TensorImpl*, FabricModule*> owners;  ///< of trained parameters
  std::vector<torch::nn::Module*> synced;  ///< by the backward that runs; a member to be allocated once
  std::int64_t next_log_step = 0;

  /// @throws ConfigError naming `call` when the ranks are not connected yet
  void require_launched(const char* call) const;
  /// Drops what belongs to models that nobody owns any more.
  void forget_dropped_modules();
  /// @throws ConfigError when the module, or one of its parameters, is set up already
  void refuse_second_setup(const torch::nn::Module& module) const;
  void remember(const std::shared_ptr<torch::nn::Module>& module);
  void forget(const torch::nn::Module& module);
  /// Null when the module is not set up.
  std::shared_ptr<FabricModule> find(const torch::nn::Module& module) const;
};

}  // namespace lockstep::detail
