// Every strategy refuses modules with tensors on another device than its rank's.
#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/strategy/strategy.h>
#include <lockstep/strategy/strategy_options.h>
#include <lockstep/torch.h>

#include "support/expect_error.h"

namespace lockstep {
namespace {

struct PartlyElsewhere : torch::nn::Module {
  PartlyElsewhere(at::Device of_weight, at::Device of_mean) {
    auto own = std::make_shared<torch::nn::Module>();
    own->register_parameter("weight", at::ones({2}, of_weight));
    own->register_buffer("mean", at::ones({2}, of_mean));
    register_module("part", std::move(own));
  }
};

TEST(StrategiesOnCpu, RefuseTensorsOfAnotherDeviceByName) {
  const std::vector<StrategyOptions> all = {SingleDevice{}, Ddp{}, Fsdp{}, DeepSpeed{}};
  for (const auto& options : all) {
    const auto strategy = make_strategy(options, 1);
    const auto parameter = std::make_shared<PartlyElsewhere>(at::kMeta, at::kCPU);
    const auto buffer = std::make_shared<PartlyElsewhere>(at::kCPU, at::kMeta);
    test::expect_error<ConfigError>([&] { strategy->setup_module(parameter); },
                                    {"parameter part.weight", "got meta", "rank 0", "to(torch::kCPU)"});
    test::expect_error<ConfigError>([&] { strategy->setup_module(buffer); },
                                    {"buffer part.mean", "got meta"});
    test::expect_error<ConfigError>([&] { strategy->setup_evaluation(*buffer); },
                                    {"buffer part.mean", "got meta"});
    strategy->setup_module(std::make_shared<PartlyElsewhere>(at::kCPU, at::kCPU));
  }
}

}  // namespace
}  // namespace lockstep
