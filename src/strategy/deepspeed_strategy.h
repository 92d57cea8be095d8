// DeepSpeed's stages on the sharded engine: a front end that turns a configuration into a plan.
#pragma once

#include <lockstep/strategy/deepspeed.h>

#include "strategy/deepspeed_plan.h"
#include "strategy/deepspeed_run.h"
#include "strategy/sharded_strategy.h"

namespace lockstep {

class DeepSpeedStrategy final : public ShardedStrategy {
 public:
  /// @throws ConfigError for a configuration that cannot be read or contradicts itself
  explicit DeepSpeedStrategy(DeepSpeed options);

  std::string_view name() const override { return "deepspeed"; }
  void setup_environment(ClusterEnvironment& environment, const WorldShape& shape) override;
  void set_precision(Precision& precision) override;
  bool unscale_in_step(Optimizer& optimizer, double factor) override {
    return scales().defer_exact(optimizer, factor);
  }
  /// What the run was configured with.
  const DeepSpeedConfig& config() const { return run_.config; }
  bool averages_every_backward() const override {
    return detail::averages_every_micro_batch(run_.config, dtype_);
  }

 private:
  void check_step(const Optimizer& optimizer) override;
  ShardingPlan plan(int world_size, int ranks_per_node) const override;

  DeepSpeed options_;
  detail::DeepSpeedRun run_;
  deepspeed::Dtype dtype_ = deepspeed::Dtype::kFp32;  // to compute in
};

}  // namespace lockstep
