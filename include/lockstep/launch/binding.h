// Which processors each rank of this node may use.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>

namespace lockstep {

/// A physical core, and where it is. A processor is a hardware thread, by the kernel's number.
struct CpuCore {
  std::vector<int> processors = {};  ///< only usable ones, ascending
  int socket = 0;                    ///< of the processor
  int node = 0;                      ///< of memory (NUMA)
  int complex = 0;                   ///< cores with the same one share their last cache
};

/// By what ranks are told apart.
enum class BindingKind {
  kNone,        ///< ranks run where the system puts them
  kCores,       ///< the same number of cores each; DeepSpeed's --bind_cores_to_rank
  kNode,        ///< all cores of a NUMA node; from here on torchrun's --numa-binding
  kSocket,      ///< all cores of a socket
  kExclusive,   ///< cores of a NUMA node, divided among its ranks
  kCoreComplex  ///< all cores that share a last cache
};

/// node, socket, exclusive, core-complex.
LOCKSTEP_API std::span<const OptionName<BindingKind>> option_names(BindingKind);

/// What was asked for.
struct BindingOptions {
  BindingKind kind = BindingKind::kNone;  ///< what a rank is bound to
  std::vector<int> processors = {};       ///< kCores: divide these, in this order; empty: all usable cores
};

/// What a rank gets.
struct RankBinding {
  std::vector<int> processors = {};  ///< numbers as the system has them
  int threads = 1;  ///< its cores, at least one; of processors that were listed, their number
};

/// `0-3,8`. The error says what would be accepted.
LOCKSTEP_API Expected<std::vector<int>> parse_processors(std::string_view text);

/// The processors that this process may use, by its affinity.
LOCKSTEP_API std::vector<int> usable_processor_numbers();

/// The cores to which `processors` belong, with these only; those that are near each other stand together.
/// `system` is where the kernel tells of them; what it does not tell counts as one node, socket or complex.
LOCKSTEP_API std::vector<CpuCore> cores_of(const std::vector<int>& processors,
                                           const std::filesystem::path& system = "/sys/devices/system");

/// One binding per local rank. Ranks get neighbours; with fewer cores (nodes, ...) than ranks, ranks share
/// them, which is said in a warning where it is about cores. Cores that are left over are nobody's.
/// @throws ConfigError naming a listed processor that is not usable
LOCKSTEP_API std::vector<RankBinding> plan_bindings(const std::vector<CpuCore>& cores,
                                                    const BindingOptions& options, int ranks);

/// The processors that this process may use, by its affinity.
LOCKSTEP_API int usable_processors();

/// How many NVIDIA devices this process may use, by CUDA_VISIBLE_DEVICES. Initializes no CUDA; blocks while
/// NVIDIA's management library is asked.
LOCKSTEP_API int usable_nvidia_devices();

}  // namespace lockstep
