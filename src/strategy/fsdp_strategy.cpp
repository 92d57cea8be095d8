#include "strategy/fsdp_strategy.h"

#include <lockstep/precision/precision.h>

#include "strategy/joined_ranks.h"

namespace lockstep {

void FsdpStrategy::setup_environment(ClusterEnvironment& environment, const WorldShape& shape) {
  set_ranks(detail::join_ranks(options_, environment, shape), shape.devices);
}

// Lightning's table of types for the mixed precisions.
void FsdpStrategy::set_precision(Precision& precision) {
  if (!options_.mixed_precision.has_no_type()) return;
  auto chosen = options_.mixed_precision.value();
  if (precision.name() == "bf16-mixed") chosen.param_dtype = at::kBFloat16;
  if (precision.name() == "16-mixed") chosen.param_dtype = at::kHalf;
  chosen.reduce_dtype = chosen.buffer_dtype = chosen.param_dtype;
  options_.mixed_precision = chosen;
}

}  // namespace lockstep
