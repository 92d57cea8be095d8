// Everything that a Fabric can be told. Each described field is also a flag (--fabric.FIELD), a YAML key
// and an environment variable (LOCKSTEP_FABRIC_FIELD); names and defaults are Lightning's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/base/options.h>
#include <lockstep/device/devices.h>
#include <lockstep/precision/precision_options.h>
#include <lockstep/strategy/strategy_options.h>

namespace lockstep {

class ClusterEnvironment;
class FabricCallback;
class Logger;

/// The part of a run's settings that ls::run() fills in from the command line.
struct FabricRunOptions {
  std::filesystem::path run_dir = {};  ///< gets ranks.json and failure.json; empty: nothing is written
  std::optional<std::uint64_t> seed_everything = {};  ///< seeds the shuffling of loaders; none: 0
  std::map<std::string, std::string> flags = {};      ///< what the command line said, by keys
  /// Removes `run_dir` if it was made for this process alone; called where that is not rank 0. May be empty.
  std::function<void()> leave_run_dir = {};
};

/// How a Fabric trains.
struct FabricOptions {
  std::string accelerator = "auto";  ///< "auto", "cpu", "gpu" or another of accelerator_names()
  StrategyOptions strategy = Auto{};
  PrecisionOptions precision = Fp32{};
  Devices devices = {};  ///< ranks on this node: "auto" (1) or a number
  int num_nodes = 1;
  bool cuda_graphs = false;          ///< capture() captures steps; the rank then works on a stream of its own
  bool expandable_segments = false;  ///< CUDA's allocator grows its segments, which wastes less memory

  std::vector<std::shared_ptr<Logger>> loggers = {};             ///< get what log() is given, on rank 0
  std::vector<std::shared_ptr<FabricCallback>> callbacks = {};   ///< in the order in which they are called
  std::shared_ptr<ClusterEnvironment> cluster_environment = {};  ///< none: detected
  FabricRunOptions run = {};                                     ///< filled in by ls::run()
};

LOCKSTEP_API void describe(OptionVisitor& visitor, FabricOptions& options);
LOCKSTEP_API void describe(OptionVisitor& visitor, FabricRunOptions& options);

}  // namespace lockstep
