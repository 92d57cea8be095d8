// How much memory model states will take: DeepSpeed's estimate_zero{2,3}_model_states_mem_needs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>

namespace lockstep {

/// What is trained where, in parameters and processes.
struct MemoryQuestion {
  std::int64_t params = 0;                ///< parameters of the model
  std::int64_t largest_layer = 0;         ///< parameters of the largest layer; for stage 3
  int gpus_per_node = 1;                  ///< ranks of each node
  int nodes = 1;                          ///< nodes of the job
  int stage = 2;                          ///< 0 to 3
  double additional_buffer_factor = 1.5;  ///< of memory on the host
};

/// What one choice of offloading takes. Bytes.
struct MemoryEstimate {
  bool offload_optimizer = false;  ///< whether the optimizer's state is kept on the host
  bool offload_param = false;      ///< stage 3 only
  bool zero_init = false;          ///< stage 3: the model is built in shards
  std::int64_t cpu_bytes = 0;      ///< of a node
  std::int64_t gpu_bytes = 0;      ///< of each device
};

/// All choices that the stage has, in DeepSpeed's order. Of stages 0 and 1 DeepSpeed has no estimate: theirs
/// count its paper's 16 bytes a parameter, and are without offloading at stage 0.
LOCKSTEP_API std::vector<MemoryEstimate> estimate_memory(const MemoryQuestion& question);

/// The table that DeepSpeed prints of `rows`; its GB are GiB.
LOCKSTEP_API std::string memory_table(const MemoryQuestion& question,
                                      const std::vector<MemoryEstimate>& rows);

/// `1500000000`, `1.5B`, `124M`, `35K`, `1T`: a whole number, in powers of 1000.
LOCKSTEP_API Expected<std::int64_t> parse_parameter_count(std::string_view text);

// How much memory model states take on a rank of lockstep.

/// What one choice of what lies on disk leaves in the memory of each rank, on CPUs: parameters, gradients and
/// Adam's states, with one micro-batch in a step. Activations, LibTorch itself and what malloc keeps of freed
/// blocks come on top. Bytes.
struct RankMemory {
  bool offload_optimizer = false;  ///< Adam's states on disk
  bool offload_param = false;      ///< parameters and gradients, too; stage 3 only
  std::int64_t fp32_bytes = 0;     ///< training in float32
  std::int64_t mixed_bytes = 0;    ///< computing in 16 bits, on float32 masters
};

/// All choices that the stage has, what takes most first. At stage 3 with stage3_max_live_parameters 0.
LOCKSTEP_API std::vector<RankMemory> estimate_rank_memory(const MemoryQuestion& question);

/// As a table; its GB are GiB.
LOCKSTEP_API std::string rank_memory_table(const MemoryQuestion& question,
                                           const std::vector<RankMemory>& rows);

}  // namespace lockstep
