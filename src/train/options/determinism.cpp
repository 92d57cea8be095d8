#include "train/options/determinism.h"

#include <ATen/Context.h>

#include <lockstep/base/env.h>
#include <lockstep/base/log.h>

namespace lockstep::detail {

void apply_determinism(const TrainerOptions& options) {
  auto& context = at::globalContext();
  const bool deterministic = options.deterministic != Deterministic::kFalse;
  if (deterministic) {
    context.setDeterministicAlgorithms(true, /*warn_only=*/options.deterministic == Deterministic::kWarn);
    // Which cuBLAS wants, before it is first used.
    if (!env::get("CUBLAS_WORKSPACE_CONFIG")) env::set("CUBLAS_WORKSPACE_CONFIG", ":4096:8");
    if (options.benchmark.value_or(false))
      log_warning("benchmark = true with deterministic: cuDNN may choose other algorithms in each run");
  }
  if (options.benchmark || deterministic) context.setBenchmarkCuDNN(options.benchmark.value_or(false));
}

}  // namespace lockstep::detail
