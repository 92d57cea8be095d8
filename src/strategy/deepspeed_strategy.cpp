#include "strategy/deepspeed_strategy.h"

#include <lockstep/base/error.h>
#include <lockstep/precision/grad_scaler.h>
#include <lockstep/precision/precision.h>

#include "strategy/deepspeed_plan.h"
#include "strategy/deepspeed_run.h"
#include "strategy/joined_ranks.h"

namespace lockstep {

DeepSpeedStrategy::DeepSpeedStrategy(DeepSpeed options)
    : ShardedStrategy(options.state_dict_type),
      options_(std::move(options)),
      config_(detail::deepspeed_run(options_, deepspeed::Dtype::kFp32).config) {}

void DeepSpeedStrategy::setup_environment(ClusterEnvironment& environment, const WorldShape& shape) {
  set_ranks(detail::join_ranks(options_, environment, shape), shape.devices);
}

void DeepSpeedStrategy::set_precision(Precision& precision) {
  dtype_ = detail::dtype_of(precision.name());
  config_ = detail::deepspeed_run(options_, dtype_).config;
  if (auto* const scaler = precision.grad_scaler())
    *scaler = GradScaler(detail::scaler_options(config_.fp16));
}

ShardingPlan DeepSpeedStrategy::plan(int world_size, int /*ranks_per_node*/) const {
  auto plan = detail::plan_of(config_, dtype_, world_size);
  plan.reduction = options_.reduction;
  return plan;
}

}  // namespace lockstep
