#include "strategy/deepspeed_strategy.h"

#include <lockstep/base/log.h>
#include <lockstep/precision/grad_scaler.h>
#include <lockstep/precision/precision.h>

#include "strategy/deepspeed_effects.h"
#include "strategy/joined_ranks.h"

namespace lockstep {

DeepSpeedStrategy::DeepSpeedStrategy(DeepSpeed options)
    : ShardedStrategy(options.state_dict_type),
      options_(std::move(options)),
      run_(detail::deepspeed_run(options_)) {}

void DeepSpeedStrategy::setup_environment(ClusterEnvironment& environment, const WorldShape& shape) {
  set_ranks(detail::join_ranks(options_, environment, shape), shape.devices);
  if (communicator().rank() != 0) return;
  for (const auto& warning : run_.warnings) log_warning(warning);
}

void DeepSpeedStrategy::set_precision(Precision& precision) {
  dtype_ = detail::dtype_of(precision.name());
  if (communicator().rank() == 0 && detail::adds_up_otherwise(run_.config, dtype_))
    log_warning(run_.config.named("data_types.grad_accum_dtype") + " has no effect yet");
  if (dtype_ == deepspeed::Dtype::kFp16 && precision.grad_scaler() != nullptr) {
    const auto fp16 = run_.is_from_file ? run_.config.fp16 : deepspeed_config(options_, dtype_).fp16;
    precision.set_grad_scaler(detail::scaler_options(fp16, run_.config.zero_optimization.stage));
  } else if (detail::checks_overflow(run_.config, dtype_)) {
    precision.set_grad_scaler(detail::constant_scale(1));
  }
}

void DeepSpeedStrategy::check_step(const Optimizer& optimizer) {
  ShardedStrategy::check_step(optimizer);
  if (detail::refuses_unused_parameters(run_.config))
    detail::require_all_used(run_.config, optimizer, trained_parameters(optimizer));
}

ShardingPlan DeepSpeedStrategy::plan(int world_size, int ranks_per_node) const {
  auto plan = detail::plan_of(run_.config, dtype_, world_size, ranks_per_node);
  plan.reduction = options_.reduction;
  return plan;
}

}  // namespace lockstep
