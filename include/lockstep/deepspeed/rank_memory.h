// How much memory model states take on a rank of lockstep.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/deepspeed/memory_estimate.h>

namespace lockstep {

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
