// What DeepSpeed's flops profiler prints.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/deepspeed/side_sections.h>
#include <lockstep/fabric/flop_counter.h>

namespace lockstep::detail {

/// One micro-batch of this rank, and the step after it.
struct ProfiledBatch {
  using Time = std::chrono::duration<double>;

  std::int64_t step = 0;  ///< that it belonged to, from 1
  int world_size = 1;
  std::int64_t batch_size = 0;
  Time forward = {}, backward = {}, update = {};
  std::vector<FlopCounter::ModuleWork> modules = {};  ///< of forward; the model first
};

/// The summary, the most expensive kinds of modules at each depth, and, where `detailed`, the tree of
/// modules. Exported for tests.
LOCKSTEP_API std::string flops_page(const ProfiledBatch& batch, const deepspeed::FlopsProfiler& options);

}  // namespace lockstep::detail
