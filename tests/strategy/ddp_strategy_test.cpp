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
