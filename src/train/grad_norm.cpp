#include <lockstep/train/grad_norm.h>

#include <lockstep/strategy/strategy.h>

namespace lockstep {

double grad_norm(StepContext& step, double norm_type) {
  return step.strategy().grad_norm(step.optimizer(), norm_type);
}

}  // namespace lockstep
