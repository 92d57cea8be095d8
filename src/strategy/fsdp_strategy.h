// Fsdp: every rank keeps a shard of parameters, gradients and optimizer state.
#pragma once

#include "strategy/sharded_strategy.h"

namespace lockstep {

class FsdpStrategy final : public ShardedStrategy {
 public:
  explicit FsdpStrategy(Fsdp options)
      : ShardedStrategy(options.state_dict_type), options_(std::move(options)) {}

  std::string_view name() const override { return "fsdp"; }
  void setup_environment(ClusterEnvironment& environment, const WorldShape& shape) override;
  void set_precision(Precision& precision) override;

 private:
  ShardingPlan plan(int world_size, int ranks_per_node) const override {
    return plan_of(options_, world_size, ranks_per_node);
  }

  Fsdp options_;
};

}  // namespace lockstep
