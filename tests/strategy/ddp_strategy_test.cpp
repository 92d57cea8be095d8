// What a strategy keeps of the modules and optimizers that it has set up; ranks are in tests/fabric.
#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/strategy/strategy.h>
#include <lockstep/strategy/strategy_options.h>
#include <lockstep/torch.h>

#include "support/expect_error.h"

namespace lockstep {
namespace {

using Linear = torch::nn::LinearImpl;

TEST(DdpStrategy, NamesModulesAndOptimizersOfOthers) {
  const auto strategy = make_strategy(Ddp{}, 1);
  const auto own = std::make_shared<Linear>(2, 1), other = std::make_shared<Linear>(2, 1);
  strategy->setup_module(own);
  const auto optimizer = strategy->setup_optimizer(*own, SGD{});
  const auto stranger = make_strategy(SingleDevice{}, 1)->setup_optimizer(*other, SGD{});
  torch::nn::Module* const synced[] = {other.get()};
  const auto loss = own->forward(torch::ones({1, 2})).sum();
  test::expect_error<ConfigError>([&] { strategy->backward(loss, synced); }, {"module"});
  test::expect_error<ConfigError>([&] { strategy->setup_optimizer(*other, SGD{}); }, {"module"});
  test::expect_error<ConfigError>([&] { strategy->optimizer_step(*stranger); }, {"optimizer"});
  strategy->optimizer_step(*optimizer);
  strategy->teardown();
  test::expect_error<ConfigError>([&] { strategy->optimizer_step(*optimizer); }, {"optimizer", "teardown"});
}

TEST(DdpStrategy, SetsReleasedModulesUpAgainWithTheirOptimizers) {
  const auto strategy = make_strategy(Ddp{}, 1);
  const auto module = std::make_shared<Linear>(2, 1);
  torch::nn::Module* const synced[] = {module.get()};
  strategy->setup_module(module);
  const auto optimizer = strategy->setup_optimizer(*module, SGD{});
  const auto backward = [&] { strategy->backward(module->forward(torch::ones({1, 2})).sum(), synced); };
  module->bias.set_requires_grad(false);
  test::expect_error<ConfigError>(backward, {"bias", "frozen", "release"});
  strategy->release_module(*module);
  test::expect_error<ConfigError>([&] { strategy->release_module(*module); }, {"module"});
  test::expect_error<ConfigError>(backward, {"module"});
  strategy->setup_module(module);
  backward();
  strategy->optimizer_step(*optimizer);
}

TEST(DdpStrategy, KeepsAStateOnlyWhereSomethingIsKept) {
  const auto module = std::make_shared<Linear>(2, 1);
  const auto plain = make_strategy(Ddp{}, 1), single = make_strategy(SingleDevice{}, 1);
  const auto power = make_strategy(Ddp{.ddp_comm_hook = DdpCommHook::kPowerSgd}, 1);
  for (const auto& strategy : {plain, single, power}) strategy->setup_module(module);
  EXPECT_TRUE(plain->state().empty());
  EXPECT_TRUE(single->state().empty());
  const auto state = power->state();
  EXPECT_EQ(state.get<StateList>("modules").size(), 1u);
  power->load_state(state);
  power->load_state({});
  power->setup_module(std::make_shared<Linear>(1, 1));
  const auto other = std::make_shared<Linear>(1, 1);
  power->setup_module(other);
  test::expect_error<CheckpointError>([&] { power->load_state(state); }, {"models"});
}

// Two backward passes of a window, averaged each time or not.
float gradient_of_a_window(bool reduces_every_micro_batch, bool bucket_views) {
  const auto strategy = make_strategy(
      Ddp{.gradient_as_bucket_view = bucket_views, .reduce_every_micro_batch = reduces_every_micro_batch}, 1);
  EXPECT_EQ(strategy->averages_every_backward(), reduces_every_micro_batch);
  const auto module = std::make_shared<Linear>(torch::nn::LinearOptions(1, 1).bias(false));
  strategy->setup_module(module);
  torch::nn::Module* const synced[] = {module.get()};
  for (const float x : {2.0F, 3.0F}) {
    const std::size_t averaged = x == 3.0F || strategy->averages_every_backward() ? 1 : 0;
    strategy->backward(module->forward(torch::full({1, 1}, x)).sum(), std::span(synced).first(averaged));
  }
  return module->weight.grad().item<float>();
}

TEST(DdpStrategy, AddsUpWhatEveryMicroBatchIsAveragedTo) {
  for (const bool every : {false, true}) {
    for (const bool views : {false, true}) EXPECT_EQ(gradient_of_a_window(every, views), 5) << every << views;
  }
}

TEST(DdpStrategy, ForgetsModulesThatNobodyOwns) {
  const auto strategy = make_strategy(Ddp{}, 1);
  auto dropped = std::make_shared<Linear>(2, 1);
  strategy->setup_module(dropped);
  const auto weight = dropped->weight;
  dropped.reset();
  const auto users_before = weight.use_count();
  strategy->setup_module(std::make_shared<Linear>(2, 1));
  EXPECT_LT(weight.use_count(), users_before);
}

}  // namespace
}  // namespace lockstep
