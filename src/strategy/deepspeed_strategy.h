// DeepSpeed's stages on the sharded engine: a front end that turns a configuration into a plan.
#pragma once

#include <lockstep/deepspeed/config.h>
#include <lockstep/parallel/sharded/sharding_plan.h>
#include <lockstep/precision/grad_scaler.h>
#include <lockstep/strategy/deepspeed.h>

#include "strategy/deepspeed_run.h"
#include "strategy/sharded_strategy.h"

namespace lockstep::detail {

// What DeepSpeed's configuration comes to for the engine and the scaler.

/// For a run of `world_size` ranks that computes in `dtype`; `ranks_per_node` of them are neighbours.
/// Exported for tests, as the next. @throws ConfigError for settings that do not fit the number of ranks
LOCKSTEP_API ShardingPlan plan_of(const DeepSpeedConfig& config, deepspeed::Dtype dtype, int world_size,
                                  int ranks_per_node = 1);

/// DeepSpeed's dynamic scale, or its static one. At stage 0 every overflow halves it, and none is an error.
LOCKSTEP_API GradScalerOptions scaler_options(const deepspeed::Fp16& fp16, int stage);

/// One that stays as it is, whatever overflows.
GradScalerOptions constant_scale(double scale);

/// Whether steps on gradients that are not finite are left out without a scale: of bf16 at stages 1 and 2.
LOCKSTEP_API bool checks_overflow(const DeepSpeedConfig& config, deepspeed::Dtype dtype);

/// Whether micro-batches are averaged one by one: at stages 2 and 3, and where gradients in 16 bits are to
/// add up in float32, the type of the shards. @see data_types.grad_accum_dtype
LOCKSTEP_API bool averages_every_micro_batch(const DeepSpeedConfig& config, deepspeed::Dtype dtype);

}  // namespace lockstep::detail

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
