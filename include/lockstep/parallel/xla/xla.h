// The options of strategies on devices of XLA: one rank, or several with a device each.
#pragma once

#include <chrono>
#include <filesystem>
#include <span>
#include <string>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>
#include <lockstep/base/options.h>
#include <lockstep/cluster/detect.h>
#include <lockstep/parallel/joining_options.h>

namespace lockstep {

/// What operators without a lowering to XLA do.
enum class XlaFallback {
  kAuto,  ///< as LOCKSTEP_XLA_FALLBACK says; cpu where it says nothing
  kCpu,   ///< run on the CPU, which is counted and said once by name
  kError  ///< end the run
};

LOCKSTEP_API std::span<const OptionName<XlaFallback>> option_names(XlaFallback);

/// One process on one device of a PJRT plug-in, or on several of them as on one, no group: Lightning's
/// SingleDeviceXLAStrategy. A training step is a program that ends behind optimizer_step().
struct SingleXla {
  std::filesystem::path pjrt_plugin =
      {};  ///< the plug-in's file, or cpu, cuda or tpu: the one of a package of the Python on PATH; by
           ///< default what LOCKSTEP_PJRT_PLUGIN or PJRT_DEVICE name
  EnumOption<XlaFallback> fallback = XlaFallback::kAuto;  ///< what operators without a lowering do
  std::filesystem::path compile_cache = {};  ///< where compiled programs are kept, off: nowhere; by default
                                             ///< LOCKSTEP_XLA_CACHE, or lockstep/xla in the user's cache
  int devices_per_process = 1;  ///< the plug-in's devices that the process trains on, the first ones: each
                                ///< has a copy of the model and a part of the rows of every batch, and XLA
                                ///< puts the sums over them into the program (its SPMD partitioner), so that
                                ///< results are those of one device
};

LOCKSTEP_API void describe(OptionVisitor& visitor, SingleXla& options);

/// Several processes with one device of a PJRT plug-in each, all of which hold the model: Lightning's
/// XLAStrategy. Gradients are averaged over ranks to the same bits as under Ddp.
struct Xla {
  std::filesystem::path pjrt_plugin = {};                 ///< as SingleXla's
  EnumOption<XlaFallback> fallback = XlaFallback::kAuto;  ///< as SingleXla's
  std::filesystem::path compile_cache = {};               ///< as SingleXla's
  int devices_per_process = 1;     ///< as SingleXla's, of each rank; with several, gradients go to other
                                   ///< ranks by the host
  bool sync_module_states = true;  ///< compare the ranks' modules at setup and make them equal to rank 0's
  bool broadcast_buffers = true;   ///< buffers follow rank 0's after every step, as under ddp
  bool find_unused_parameters = false;  ///< allows losses that leave out some parameters: ranks tell each
                                        ///< other which, for which they wait for each other once a step
  bool reduce_in_program = true;  ///< gradients are averaged by a function that the compiled program calls,
                                  ///< where the plug-in can, so that a step is one program; false: the
                                  ///< program ends behind backward
  std::chrono::milliseconds timeout = std::chrono::minutes(30);  ///< for joining and for each collective
  std::string process_group_backend = "auto";             ///< what carries the bytes: CommOptions::backend
  EnumOption<Reduction> reduction = Reduction::kOrdered;  ///< order of sums
  bool check_collectives = true;  ///< ranks compare what they call before each collective
  EnumOption<StartMethod> start_method = StartMethod::kAuto;  ///< how ranks come to be
  EnvironmentChoice cluster_environment = {};  ///< who told each rank its place; by default detected
};

LOCKSTEP_API void describe(OptionVisitor& visitor, Xla& options);

}  // namespace lockstep
