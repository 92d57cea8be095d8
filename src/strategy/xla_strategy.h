// SingleXla and Xla: strategies whose training steps are compiled programs, each of which ends behind
// optimizer_step().
#pragma once

#include <memory>
#include <string_view>

#include <lockstep/parallel/xla/xla.h>
#include <lockstep/strategy/strategy.h>

#include "parallel/xla/xla_engine.h"
#include "strategy/replicated_strategy.h"
#include "strategy/single_device_strategy.h"

namespace lockstep {

class SingleXlaStrategy final : public SingleDeviceStrategy {
 public:
  std::string_view name() const override { return "single_xla"; }
  void optimizer_step(Optimizer& optimizer) override;
  double optimizer_step_with(Optimizer& optimizer, const Optimizer::Closure& closure) override;
};

/// Every rank holds the whole model on a device of its own; gradients are averaged behind backward.
class XlaStrategy final : public ReplicatedStrategy<detail::XlaEngine> {
 public:
  explicit XlaStrategy(Xla options) : options_(std::move(options)) {}

  std::string_view name() const override { return "xla"; }
  void setup_environment(ClusterEnvironment& environment, const WorldShape& shape) override;
  void setup_module(const std::shared_ptr<torch::nn::Module>& module) override;
  void setup_evaluation(torch::nn::Module& module) override;
  void backward(const at::Tensor& loss, std::span<torch::nn::Module* const> synced,
                const BackwardOptions& options) override;
  std::uint64_t bytes_sent() const override;

 private:
  void end_step(Engines::Row& row) override;

  Xla options_;
  std::shared_ptr<const detail::ProgramCollectives> in_program_;
};

}  // namespace lockstep
