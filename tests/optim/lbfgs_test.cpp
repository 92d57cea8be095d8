// LBFGS against torch's own, and what a checkpoint holds of it.
#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/torch.h>

#include "optim/support.h"
#include "support/expect_error.h"

namespace lockstep {
namespace {

using optim_test::Model;
using optim_test::parameters_of;

// Rosenbrock's valley over all parameters.
torch::Tensor valley(const Model& model) {
  std::vector<torch::Tensor> parts;
  for (const auto& parameter : model) parts.push_back(parameter.reshape(-1));
  const auto x = torch::cat(parts) / 2;
  const auto low = x.slice(0, 0, -1), high = x.slice(0, 1);
  return (100 * (high - low * low).pow(2) + (1 - low).pow(2)).sum();
}

Optimizer::Closure closure_of(Model& model, int* evaluations = nullptr) {
  return [&model, evaluations] {
    for (auto& parameter : model) parameter.mutable_grad().reset();
    const auto loss = valley(model);
    loss.backward();
    if (evaluations != nullptr) ++*evaluations;
    return loss.item<double>();
  };
}

class Lbfgs : public ::testing::TestWithParam<LineSearch> {
 protected:
  LBFGS options() const {
    return {.lr = GetParam() == LineSearch::kNone ? 1e-3 : 1.0,
            .max_iter = 7,
            .history_size = 5,
            .line_search_fn = GetParam()};
  }
};

TEST_P(Lbfgs, AgreesWithTorch) {
  auto mine = optim_test::model(at::kDouble), theirs = optim_test::model(at::kDouble);
  const auto optimizer = OptimizerFactory(options()).create(parameters_of(mine));
  auto torch_options = torch::optim::LBFGSOptions(options().lr).max_iter(7).history_size(5);
  if (GetParam() == LineSearch::kStrongWolfe) torch_options.line_search_fn("strong_wolfe");
  torch::optim::LBFGS torch_lbfgs(theirs, torch_options);
  int evaluations = 0, torch_evaluations = 0;
  for (int step = 0; step < 4; ++step) {
    const double loss = optimizer->step_with(closure_of(mine, &evaluations));
    const auto closure = closure_of(theirs, &torch_evaluations);
    const auto torch_loss = torch_lbfgs.step([&] { return torch::full({}, closure(), torch::kDouble); });
    EXPECT_NEAR(loss, torch_loss.item<double>(), 1e-9 * std::abs(loss)) << step;
  }
  EXPECT_EQ(evaluations, torch_evaluations);
  EXPECT_LT(valley(mine).item<double>(), 0.95 * valley(optim_test::model(at::kDouble)).item<double>());
  for (std::size_t i = 0; i < mine.size(); ++i)
    EXPECT_TRUE(torch::allclose(mine[i], theirs[i], 1e-5, 1e-8)) << i;
}

TEST_P(Lbfgs, GoesOnFromItsStateToTheBit) {
  auto straight = optim_test::model(), first = optim_test::model(), second = optim_test::model();
  const auto whole = OptimizerFactory(options()).create(parameters_of(straight));
  for (int step = 0; step < 4; ++step) whole->step_with(closure_of(straight));

  const auto before = OptimizerFactory(options()).create(parameters_of(first));
  for (int step = 0; step < 2; ++step) before->step_with(closure_of(first));
  {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < first.size(); ++i) second[i].copy_(first[i]);
  }
  const auto after = OptimizerFactory(options()).create(parameters_of(second));
  after->step_with(closure_of(second));  // has a history of its own, which goes
  {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < first.size(); ++i) second[i].copy_(first[i]);
  }
  load_state(*after, state_of(*before));
  for (int step = 0; step < 2; ++step) after->step_with(closure_of(second));
  for (std::size_t i = 0; i < straight.size(); ++i) EXPECT_TRUE(torch::equal(straight[i], second[i])) << i;
}

INSTANTIATE_TEST_SUITE_P(LineSearches, Lbfgs, ::testing::Values(LineSearch::kNone, LineSearch::kStrongWolfe),
                         [](const auto& tested) {
                           return tested.param == LineSearch::kNone ? "none" : "strong_wolfe";
                         });

TEST(LbfgsRefuses, AStepWithoutAClosure) {
  auto model = optim_test::model();
  const auto optimizer = OptimizerFactory(LBFGS{}).create(parameters_of(model));
  test::expect_error<ConfigError>([&] { optimizer->step(); }, {"LBFGS", "closure"});
}

TEST(LbfgsRefuses, ParametersOfSeveralTypes) {
  auto model = optim_test::model();
  model[1] = model[1].detach().to(at::kDouble).requires_grad_();
  test::expect_error<ConfigError>([&] { OptimizerFactory(LBFGS{}).create(parameters_of(model)); },
                                  {"LBFGS", "Double", "p1"});
}

TEST(LbfgsRefuses, OptionsOutOfRange) {
  test::expect_error<ConfigError>([] { OptimizerFactory factory(LBFGS{.max_iter = 0}); },
                                  {"LBFGS.max_iter", ">= 1"});
  test::expect_error<ConfigError>([] { OptimizerFactory factory(LBFGS{.history_size = 0}); },
                                  {"LBFGS.history_size"});
}

TEST(OtherOptimizers, TakeAClosureToo) {
  auto mine = optim_test::model(), other = optim_test::model();
  const auto with = OptimizerFactory(SGD{.lr = 1e-4}).create(parameters_of(mine));
  const auto without = OptimizerFactory(SGD{.lr = 1e-4}).create(parameters_of(other));
  const double loss = with->step_with(closure_of(mine));
  EXPECT_EQ(loss, closure_of(other)());
  without->step();
  for (std::size_t i = 0; i < mine.size(); ++i) EXPECT_TRUE(torch::equal(mine[i], other[i]));
}

}  // namespace
}  // namespace lockstep
