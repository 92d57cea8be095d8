#include "strategy/fsdp_strategy.h"

#include <lockstep/precision/precision.h>

#include "strategy/joined_ranks.h"

namespace lockstep {

void FsdpStrategy::setup_environment(ClusterEnvironment& environment, const WorldShape& shape) {
  set_ranks(detail::join_ranks(options_, environment, shape), shape.devices);
}

// Lightning's table of types for the mixed precisions.
void FsdpStrategy::set_precision(Precision& precision) {
  if (!options_.mixed_precision.is_none()) return;
  if (precision.name() == "bf16-mixed") options_.mixed_precision = at::kBFloat16;
  if (precision.name() == "16-mixed") options_.mixed_precision = at::kHalf;
}

}  // namespace lockstep
