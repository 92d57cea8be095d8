#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/torch.h>

#include "optim/support.h"
#include "support/expect_error.h"

namespace lockstep {
namespace {

using optim_test::Model;
using optim_test::parameters_of;

// Twenty steps on both copies with the same gradients; the largest difference of any element at the end.
template <class TorchOptimizer>
double difference_after_20_steps(const OptimizerFactory& ours, Model& mine, Model& theirs,
                                 TorchOptimizer&& torch_optimizer) {
  auto optimizer = ours.create(parameters_of(mine));
  for (int step = 0; step < 20; ++step) {
    optim_test::set_gradients(mine, step);
    optim_test::set_gradients(theirs, step);
    optimizer->step();
    torch_optimizer.step();
  }
  double largest = 0.0;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    largest = std::max(largest, (mine[i] - theirs[i]).abs().max().item<double>());
  }
  return largest;
}

TEST(Optimizers, AgreeWithTorchSgd) {
  for (const bool nesterov : {false, true}) {
    for (const double momentum : {0.0, 0.9}) {
      if (nesterov && momentum == 0.0) continue;
      const double dampening = nesterov ? 0.0 : 0.3;
      auto mine = optim_test::model(), theirs = optim_test::model();
      torch::optim::SGD torch_sgd(
          theirs,
          torch::optim::SGDOptions(0.05).momentum(momentum).dampening(dampening).weight_decay(0.1).nesterov(
              nesterov));
      const SGD sgd{.lr = 0.05,
                    .momentum = momentum,
                    .dampening = dampening,
                    .weight_decay = 0.1,
                    .nesterov = nesterov};
      EXPECT_LT(difference_after_20_steps(sgd, mine, theirs, torch_sgd), 1e-6) << nesterov << momentum;
    }
  }
}

TEST(Optimizers, AgreeWithTorchAdamW) {
  auto mine = optim_test::model(), theirs = optim_test::model();
  torch::optim::AdamW torch_adamw(theirs,
                                  torch::optim::AdamWOptions(3e-3).betas({0.8, 0.99}).weight_decay(0.1));
  const AdamW adamw{.lr = 3e-3, .betas = {0.8, 0.99}, .weight_decay = 0.1};
  EXPECT_LT(difference_after_20_steps(adamw, mine, theirs, torch_adamw), 1e-6);
}

TEST(Optimizers, AgreeWithTorchAdam) {
  auto mine = optim_test::model(), theirs = optim_test::model();
  torch::optim::Adam torch_adam(theirs, torch::optim::AdamOptions(3e-3).weight_decay(0.1));
  EXPECT_LT(difference_after_20_steps(Adam{.lr = 3e-3, .weight_decay = 0.1}, mine, theirs, torch_adam), 1e-6);
}

TEST(Optimizers, AgreeWithTorchInFloat64) {
  auto mine = optim_test::model(at::kDouble), theirs = optim_test::model(at::kDouble);
  torch::optim::AdamW torch_adamw(theirs, torch::optim::AdamWOptions(3e-3));
  EXPECT_LT(difference_after_20_steps(AdamW{.lr = 3e-3}, mine, theirs, torch_adamw), 1e-14);
}

TEST(Optimizers, MaximizeClimbs) {
  auto up = optim_test::model(), down = optim_test::model();
  auto climber = OptimizerFactory(SGD{.lr = 0.1, .maximize = true}).create(parameters_of(up));
  auto sinker = OptimizerFactory(SGD{.lr = 0.1}).create(parameters_of(down));
  const auto start = optim_test::model();
  optim_test::set_gradients(up, 0);
  optim_test::set_gradients(down, 0);
  climber->step();
  sinker->step();
  EXPECT_TRUE(torch::allclose(up[0] + down[0], 2 * start[0]));
  EXPECT_FALSE(torch::allclose(up[0], start[0]));
}

TEST(Optimizers, GradScaleEqualsScaledGradients) {
  for (const OptimizerFactory& factory :
       {OptimizerFactory(AdamW{}), OptimizerFactory(SGD{.momentum = 0.9}), OptimizerFactory(Adagrad{}),
        OptimizerFactory(Lion{}), OptimizerFactory(Lamb{}), OptimizerFactory(Muon{})}) {
    auto scaled = optim_test::model(), plain = optim_test::model();
    auto first = factory.create(parameters_of(scaled)), second = factory.create(parameters_of(plain));
    optim_test::set_gradients(scaled, 0);
    optim_test::set_gradients(plain, 0);
    for (auto& parameter : plain) parameter.mutable_grad().mul_(0.3);
    first->step(0.3);
    second->step();
    for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(torch::equal(scaled[i], plain[i]));
  }
}

TEST(Optimizers, TakeGroupsLater) {
  for (const OptimizerFactory& factory :
       {OptimizerFactory(AdamW{.lr = 0.1, .weight_decay = 0.5}),
        OptimizerFactory(SGD{.lr = 0.1, .momentum = 0.9}),
        OptimizerFactory(Adagrad{.lr = 0.1, .initial_accumulator_value = 0.5}),
        OptimizerFactory(Lion{.lr = 0.1}), OptimizerFactory(Lamb{.lr = 0.1})}) {
    auto grown = optim_test::model(), whole = optim_test::model();
    const auto named = parameters_of(grown);
    const auto optimizer = factory.create({named[0], named[1]}), other = factory.create(parameters_of(whole));
    EXPECT_EQ(optimizer->add_param_group({named[2]}, 0.1).parameters, std::vector<std::string>{"p2"});
    for (int step = 0; step < 3; ++step) {
      optim_test::set_gradients(grown, step);
      optim_test::set_gradients(whole, step);
      optimizer->step();
      other->step();
    }
    for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_TRUE(torch::equal(grown[i], whole[i]));
    EXPECT_EQ(optimizer->groups()[1].initial_lr, 0.1);
    EXPECT_EQ(optimizer->state().size(), other->state().size());
    test::expect_error<ConfigError>([&] { optimizer->add_param_group({named[2]}, 0.1); }, {"p2", "twice"});
    test::expect_error<ConfigError>([&] { optimizer->add_param_group({}, 0.1); }, {"no parameters"});
    EXPECT_EQ(optimizer->groups().size(), 2u);
    EXPECT_EQ(optimizer->parameters().size(), 3u);
  }
}

TEST(Optimizers, OfOnesOwnNeedNotTakeGroupsLater) {
  struct Fixed final : Optimizer {
    explicit Fixed(const at::Tensor& p) : Optimizer({{"p", p}}, {{.pattern = "", .parameters = {"p"}}}) {}
    void step(double) override {}
    std::string_view name() const override { return "Fixed"; }
    std::vector<OptimizerState> state() override { return {}; }
  };
  Fixed optimizer(torch::zeros({1}));
  test::expect_error<ConfigError>(
      [&] {
        optimizer.add_param_group({{"q", torch::zeros({1})}}, 0.1);
      },
      {"another group", "Fixed"});
  EXPECT_EQ(optimizer.groups().size(), 1u);
  EXPECT_EQ(optimizer.parameters().size(), 1u);
}

TEST(Optimizers, LeaveParametersWithoutGradientAlone) {
  for (const OptimizerFactory& factory :
       {OptimizerFactory(AdamW{.weight_decay = 0.5}),
        OptimizerFactory(SGD{.momentum = 0.9, .weight_decay = 0.5}),
        OptimizerFactory(Adagrad{.weight_decay = 0.5}), OptimizerFactory(Lion{.weight_decay = 0.5}),
        OptimizerFactory(Lamb{.weight_decay = 0.5}), OptimizerFactory(Muon{.weight_decay = 0.5})}) {
    auto model = optim_test::model();
    const auto before = model[1].detach().clone();
    auto optimizer = factory.create(parameters_of(model));
    for (int step = 0; step < 3; ++step) {
      optim_test::set_gradients(model, step);
      if (step < 2) model[1].mutable_grad().reset();
      optimizer->step();
      if (step < 2) {
        EXPECT_TRUE(torch::equal(model[1], before));
      }
    }
    EXPECT_FALSE(torch::equal(model[1], before));
    EXPECT_EQ(optim_test::state_of(*optimizer, "p0", "step").item<int>(), 3);
    EXPECT_EQ(optim_test::state_of(*optimizer, "p1", "step").item<int>(), 1);
  }
}

TEST(Optimizers, HandleParametersAndGradientsThatAreNotContiguous) {
  const auto turned = [](const torch::Tensor& tensor) { return tensor.t().contiguous().t(); };
  const auto values = torch::randn({6, 4}), gradient = torch::randn({6, 4});
  ASSERT_FALSE(turned(values).is_contiguous());
  for (const OptimizerFactory& factory :
       {OptimizerFactory(AdamW{}), OptimizerFactory(SGD{.momentum = 0.9}), OptimizerFactory(Adagrad{}),
        OptimizerFactory(Lion{}), OptimizerFactory(Lamb{}), OptimizerFactory(Muon{})}) {
    auto row_major = values.clone(), column_major = turned(values);
    auto first = factory.create({{"p", row_major}}), second = factory.create({{"p", column_major}});
    for (int step = 0; step < 3; ++step) {
      row_major.mutable_grad() = turned(gradient);
      column_major.mutable_grad() = gradient;
      first->step();
      second->step();
    }
    EXPECT_TRUE(torch::equal(row_major, column_major));
    EXPECT_FALSE(torch::equal(row_major, values));
  }
}

TEST(Optimizers, ComputeLowPrecisionInFloat32) {
  for (const OptimizerFactory& factory :
       {OptimizerFactory(AdamW{.lr = 0.1}), OptimizerFactory(Adagrad{.lr = 0.1}),
        OptimizerFactory(Lion{.lr = 0.1}), OptimizerFactory(Lamb{.lr = 0.1}),
        OptimizerFactory(Muon{.lr = 0.1})}) {
    for (const auto dtype : {at::kBFloat16, at::kHalf}) {
      auto low = torch::randn({11, 3}).to(dtype), high = low.to(at::kFloat);
      auto low_optimizer = factory.create({{"p", low}}), high_optimizer = factory.create({{"p", high}});
      low.mutable_grad() = torch::randn({11, 3}).to(dtype);
      high.mutable_grad() = low.grad().to(at::kFloat);
      low_optimizer->step();
      high_optimizer->step();
      EXPECT_TRUE(torch::equal(low, high.to(dtype))) << low_optimizer->name();
      EXPECT_EQ(low_optimizer->state().back().tensor.scalar_type(), at::kFloat);
    }
  }
}

// torch keeps its state in the parameters' type and rounds after every operation: ours is nearer to float32.
template <class TorchOptimizer, class TorchOptions>
void expect_nearer_than_torch(const OptimizerFactory& ours, const TorchOptions& options,
                              at::ScalarType dtype) {
  auto mine = optim_test::model(dtype), theirs = optim_test::model(dtype);
  auto exact = optim_test::model(dtype);
  for (auto& parameter : exact) parameter = parameter.detach().to(at::kDouble).requires_grad_();
  auto optimizer = ours.create(parameters_of(mine)), reference = ours.create(parameters_of(exact));
  TorchOptimizer torch_optimizer(theirs, options);
  double my_error = 0, torch_error = 0;
  for (int step = 0; step < 20; ++step) {
    optim_test::set_gradients(mine, step);
    optim_test::set_gradients(theirs, step);
    for (std::size_t i = 0; i < exact.size(); ++i) exact[i].mutable_grad() = mine[i].grad().to(at::kDouble);
    optimizer->step();
    torch_optimizer.step();
    reference->step();
  }
  for (std::size_t i = 0; i < mine.size(); ++i) {
    EXPECT_EQ(mine[i].scalar_type(), dtype);
    my_error += (mine[i].to(at::kDouble) - exact[i]).square().sum().template item<double>();
    torch_error += (theirs[i].to(at::kDouble) - exact[i]).square().sum().template item<double>();
    EXPECT_TRUE(torch::allclose(mine[i], theirs[i], 0.05, 0.02)) << dtype << " " << i;
  }
  EXPECT_LT(my_error, torch_error) << dtype;
}

TEST(Optimizers, AgreeWithTorchInLowPrecision) {
  const SGD sgd{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.1};
  const auto torch_sgd = torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(0.1);
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    expect_nearer_than_torch<torch::optim::SGD>(sgd, torch_sgd, dtype);
    expect_nearer_than_torch<torch::optim::AdamW>(AdamW{.lr = 3e-3, .eps = 1e-4},
                                                  torch::optim::AdamWOptions(3e-3).eps(1e-4), dtype);
  }
}

// Squares of small gradients, and torch's eps, are zero in float16.
TEST(Optimizers, SmallFloat16GradientsStep) {
  auto weight = torch::ones({4}, at::kHalf);
  const auto optimizer = OptimizerFactory(AdamW{.lr = 0.1, .weight_decay = 0}).create({{"weight", weight}});
  weight.mutable_grad() = torch::full({4}, 1e-5, at::kHalf);
  optimizer->step();
  EXPECT_TRUE(torch::allclose(weight, torch::full({4}, 0.9, at::kHalf), 1e-2)) << weight;
}

TEST(Optimizers, AcceptEmptyShards) {
  auto empty = torch::zeros({0});
  empty.mutable_grad() = torch::zeros({0});
  auto optimizer = OptimizerFactory(AdamW{}).create({{"p", empty}});
  optimizer->step();
  EXPECT_EQ(optim_test::state_of(*optimizer, "p", "step").item<int>(), 1);
}

TEST(ZeroGrad, KeepsBucketViewsAttached) {
  auto model = optim_test::model();
  auto optimizer = OptimizerFactory(SGD{}).create(parameters_of(model));
  const auto bucket = torch::ones({model[0].numel()});
  model[0].mutable_grad() = bucket.view(model[0].sizes());
  optimizer->zero_grad(/*set_to_none=*/false);
  EXPECT_EQ(bucket.abs().sum().item<double>(), 0.0);
  EXPECT_TRUE(model[0].grad().is_alias_of(bucket));
  optimizer->zero_grad();
  EXPECT_FALSE(model[0].grad().defined());
}

}  // namespace
}  // namespace lockstep
