// Groups, state, and every refusal's text.
#include <gmock/gmock.h>
#include <lockstep/base/error.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/torch.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "optim/support.h"

namespace lockstep {
namespace {

using optim_test::error_of;
using optim_test::parameters_of;

std::vector<NamedParameter> two_layers() {
  std::vector<NamedParameter> parameters;
  for (const char* name : {"0.weight", "0.bias", "2.weight", "2.bias"}) {
    parameters.push_back({name, torch::ones({2}).requires_grad_()});
  }
  return parameters;
}

std::string refusal(const OptimizerFactory& factory, std::vector<NamedParameter> parameters = two_layers()) {
  return error_of<ConfigError>([&] { factory.create(std::move(parameters)); });
}

TEST(ParameterGroups, TakeTheFirstPatternThatMatches) {
  const AdamW adamw{.lr = 0.1,
                    .weight_decay = 0.5,
                    .groups = {{.pattern = "*.bias", .weight_decay = 0.0},
                               {.pattern = "2.*", .lr = 0.01, .betas = std::array{0.5, 0.6}}}};
  const auto optimizer = OptimizerFactory(adamw).create(two_layers());
  const auto& groups = optimizer->groups();
  ASSERT_EQ(groups.size(), 3);
  EXPECT_EQ(groups[0].parameters, (std::vector<std::string>{"0.bias", "2.bias"}));
  EXPECT_EQ(groups[0].weight_decay, 0.0);
  EXPECT_EQ(groups[0].lr, 0.1);
  EXPECT_EQ(groups[1].parameters, (std::vector<std::string>{"2.weight"}));
  EXPECT_EQ(groups[1].lr, 0.01);
  EXPECT_EQ(groups[1].initial_lr, 0.01);
  EXPECT_EQ((*groups[1].betas)[1], 0.6);
  EXPECT_EQ(groups[2].parameters, (std::vector<std::string>{"0.weight"}));
  EXPECT_EQ(groups[2].weight_decay, 0.5);
}

TEST(ParameterGroups, StepWithTheirOwnSettings) {
  const SGD sgd{.lr = 0.1,
                .groups = {{.pattern = "*.bias", .lr = 0.0}, {.pattern = "2.*", .weight_decay = 1.0}}};
  const auto parameters = two_layers();
  const auto optimizer = OptimizerFactory(sgd).create(parameters);
  for (const auto& parameter : parameters) parameter.tensor.mutable_grad() = torch::ones({2});
  optimizer->step();
  const double expected[] = {0.9, 1.0, 0.8, 1.0};
  for (int i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(parameters[i].tensor[0].item<float>(), expected[i]) << i;
}

TEST(ParameterGroups, LeaveOutTheEmptyRest) {
  const auto optimizer = OptimizerFactory(SGD{.groups = {{.pattern = "*"}}}).create(two_layers());
  EXPECT_EQ(optimizer->groups().size(), 1);
}

TEST(ParameterGroups, RefuseIdlePatterns) {
  const std::string chooses =
      "chooses no parameter; expected a glob over 0.weight, 0.bias, 2.weight, 2.bias; got ";
  EXPECT_EQ(refusal(SGD{.groups = {{.pattern = "0.bais"}}}),
            "[optim] groups: pattern \"0.bais\" " + chooses + "no match; did you mean 0.bias?");
  EXPECT_EQ(refusal(SGD{.groups = {{.pattern = "encoder.*"}}}),
            "[optim] groups: pattern \"encoder.*\" " + chooses + "no match");
  EXPECT_EQ(refusal(SGD{.groups = {{.pattern = "0.*"}, {.pattern = "0.bias"}}}),
            "[optim] groups: pattern \"0.bias\" " + chooses +
                "only parameters that an earlier pattern chose; the "
                "first pattern that matches wins: put the narrower one first");
  auto many = two_layers();
  for (const char* name : {"4.weight", "4.bias"}) many.push_back({name, torch::ones({2})});
  EXPECT_THAT(refusal(SGD{.groups = {{.pattern = "x"}}}, many),
              ::testing::HasSubstr("2.bias, 4.weight, ... (6); got"));
}

TEST(OptimizerState, HasTorchsNamesAndShapes) {
  auto model = optim_test::model();
  const auto adamw = OptimizerFactory(AdamW{}).create(parameters_of(model));
  const auto state = adamw->state();
  ASSERT_EQ(state.size(), 9);
  EXPECT_EQ(state[0].kind, "step");
  EXPECT_EQ(state[1].kind, "exp_avg");
  EXPECT_EQ(state[2].kind, "exp_avg_sq");
  EXPECT_EQ(state[8].parameter, "p2");
  EXPECT_EQ(state[8].tensor.sizes(), model[2].sizes());
  for (const auto& entry : state) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(entry.tensor.const_data_ptr()) % 64, 0) << entry.kind;
  }
  EXPECT_TRUE(OptimizerFactory(SGD{}).create(parameters_of(model))->state().empty());
  EXPECT_EQ(OptimizerFactory(SGD{.momentum = 0.9}).create(parameters_of(model))->state().size(), 6);
}

TEST(OptimizerState, ResumesExactly) {
  for (const OptimizerFactory& factory :
       {OptimizerFactory(AdamW{}), OptimizerFactory(SGD{.momentum = 0.9}), OptimizerFactory(Adagrad{}),
        OptimizerFactory(Lion{}), OptimizerFactory(Lamb{}), OptimizerFactory(Muon{})}) {
    auto through = optim_test::model();
    auto first = factory.create(parameters_of(through));
    for (int step = 0; step < 3; ++step) optim_test::set_gradients(through, step), first->step();
    std::vector<OptimizerState> saved;
    for (const auto& entry : first->state())
      saved.push_back({entry.parameter, entry.kind, entry.tensor.clone()});
    optim_test::Model resumed;
    for (const auto& tensor : through) resumed.push_back(tensor.detach().clone().requires_grad_());
    auto second = factory.create(parameters_of(resumed));
    second->load_state(saved);
    for (int step = 3; step < 6; ++step) {
      optim_test::set_gradients(through, step);
      optim_test::set_gradients(resumed, step);
      first->step();
      second->step();
    }
    for (std::size_t i = 0; i < through.size(); ++i) EXPECT_TRUE(torch::equal(through[i], resumed[i]));
  }
}

// A rank that has no element of any parameter may be the one that saves their counts.
TEST(OptimizerState, CountsStepsOfParametersWithoutElements) {
  const std::map<std::string, OptimizerFactory> factories{
      {"SGD", SGD{.lr = 0.1, .momentum = 0.9}}, {"Adam", Adam{}}, {"AdamW", AdamW{}},
      {"Adagrad", Adagrad{.lr = 0.1}},          {"Lion", Lion{}}, {"Lamb", Lamb{}}};
  for (const auto& [name, factory] : factories) {
    const auto none = torch::ones({0}).requires_grad_();
    const auto optimizer = factory.create({{"none", none}});
    for (int step = 0; step < 2; ++step) {
      none.mutable_grad() = torch::ones({0});
      optimizer->step();
    }
    const auto state = optimizer->state();
    const auto count = std::ranges::find(state, "step", &lockstep::OptimizerState::kind);
    ASSERT_NE(count, state.end()) << name;
    EXPECT_EQ(count->tensor.item<int>(), 2) << name;
  }
}

TEST(OptimizerState, OfFrozenParametersComesWithTheirFirstGradient) {
  auto model = optim_test::model();
  model[0].set_requires_grad(false);
  auto optimizer = OptimizerFactory(AdamW{}).create(parameters_of(model));
  EXPECT_EQ(optimizer->state().size(), 6);
  model[0].set_requires_grad(true);
  optim_test::set_gradients(model, 0);
  optimizer->step();
  const auto saved = optimizer->state();
  EXPECT_EQ(saved.size(), 9);
  auto frozen = optim_test::model();
  frozen[0].set_requires_grad(false);
  auto other = OptimizerFactory(AdamW{}).create(parameters_of(frozen));
  other->load_state(saved);
  EXPECT_TRUE(torch::equal(optim_test::state_of(*other, "p0", "exp_avg"), saved[1].tensor));
}

TEST(OptimizerState, IsRefusedWhereItDoesNotFit) {
  auto model = optim_test::model();
  auto optimizer = OptimizerFactory(AdamW{}).create(parameters_of(model));
  const auto load = [&](const std::vector<OptimizerState>& saved) {
    return error_of<CheckpointError>([&] { optimizer->load_state(saved); });
  };
  const std::string hint = "; load state that was saved for the same model and optimizer";
  auto saved = optimizer->state();
  saved.pop_back();
  EXPECT_EQ(load(saved),
            "[optim] optimizer state exp_avg_sq of p2 does not fit; expected an entry; got none" + hint);
  saved.push_back({"p2", "exp_avg_sq", torch::zeros({4})});
  EXPECT_EQ(
      load(saved),
      "[optim] optimizer state exp_avg_sq of p2 does not fit; expected shape [2, 3, 4]; got [4]" + hint);
  saved.back().tensor = torch::zeros({2, 3, 4});
  saved.push_back({"q", "step", torch::zeros({})});
  EXPECT_EQ(load(saved),
            "[optim] optimizer state step of q does not fit; expected no such entry; got one" + hint);
  saved.back() = saved.front();
  EXPECT_EQ(load(saved),
            "[optim] optimizer state step of p0 does not fit; expected one entry; got two" + hint);
}

TEST(OptimizerFactory, TakesAUsersFunction) {
  OptimizerFactory none;
  EXPECT_FALSE(none);
  const OptimizerFactory factory = [](std::vector<NamedParameter> parameters) {
    return OptimizerFactory(SGD{.lr = 0.5}).create(std::move(parameters));
  };
  ASSERT_TRUE(factory);
  EXPECT_EQ(factory.create(two_layers())->name(), "SGD");
  const Optimizers optimizers{.optimizer = AdamW{.lr = 3e-4},
                              .lr_scheduler = LRScheduler{.scheduler = LinearLR{}}};
  EXPECT_EQ(optimizers.optimizer.create(two_layers())->name(), "AdamW");
  EXPECT_EQ(refusal(none),
            "[optim] there is no optimizer to create; expected SGD, Adam, AdamW, Adagrad, Lion, Lamb, Muon, "
            "LBFGS or a "
            "function; got an empty factory");
  const OptimizerFactory null = [](std::vector<NamedParameter>) { return std::unique_ptr<Optimizer>(); };
  EXPECT_EQ(refusal(null),
            "[optim] there is no optimizer; expected one from the factory's function; got a null pointer");
}

template <class Options>
std::string option_refusal(const Options& options) {
  return error_of<ConfigError>([&] { OptimizerFactory{options}; });
}

TEST(OptimizerOptions, AreRefusedByFieldAndValue) {
  EXPECT_EQ(option_refusal(SGD{.lr = -1}),
            "[optim] SGD.lr is out of range; expected a finite number >= 0; got -1");
  EXPECT_EQ(option_refusal(SGD{.momentum = -1}),
            "[optim] SGD.momentum is out of range; expected a finite number >= 0; got -1");
  EXPECT_EQ(option_refusal(SGD{.dampening = NAN}),
            "[optim] SGD.dampening is out of range; expected a finite number; got nan");
  EXPECT_EQ(option_refusal(SGD{.weight_decay = -1}),
            "[optim] SGD.weight_decay is out of range; expected a finite number >= 0; got -1");
  EXPECT_EQ(option_refusal(SGD{.nesterov = true}),
            "[optim] SGD.momentum is out of range; expected > 0, as nesterov needs it; got 0");
  EXPECT_EQ(option_refusal(SGD{.momentum = 0.9, .dampening = 0.1, .nesterov = true}),
            "[optim] SGD.dampening is out of range; expected 0, as nesterov needs it; got 0.1");
  EXPECT_EQ(option_refusal(AdamW{.lr = NAN}),
            "[optim] AdamW.lr is out of range; expected a finite number >= 0; got nan");
  EXPECT_EQ(option_refusal(AdamW{.betas = {1.0, 0.9}}),
            "[optim] AdamW.betas[0] is out of range; expected a number in [0, 1); got 1");
  EXPECT_EQ(option_refusal(Adam{.betas = {0.9, -0.1}}),
            "[optim] Adam.betas[1] is out of range; expected a number in [0, 1); got -0.1");
  EXPECT_EQ(option_refusal(Adam{.eps = -1}),
            "[optim] Adam.eps is out of range; expected a finite number >= 0; got -1");
  EXPECT_EQ(option_refusal(AdamW{.weight_decay = -1}),
            "[optim] AdamW.weight_decay is out of range; expected a finite number >= 0; got -1");
  EXPECT_EQ(option_refusal(AdamW{.groups = {{.pattern = "*.bias", .lr = -1}}}),
            "[optim] AdamW.groups[\"*.bias\"].lr is out of range; expected a finite number >= 0; got -1");
  EXPECT_EQ(option_refusal(AdamW{.groups = {{.pattern = "*", .momentum = 0.9}}}),
            "[optim] AdamW.groups[\"*\"].momentum is given; expected no momentum: AdamW has none; got one");
  EXPECT_EQ(option_refusal(SGD{.groups = {{.pattern = "*", .betas = std::array{0.9, 0.9}}}}),
            "[optim] SGD.groups[\"*\"].betas is given; expected no betas: SGD has none; got some");
}

TEST(Optimizer, RefusesParametersItCannotTake) {
  const auto p = torch::zeros({2});
  EXPECT_EQ(refusal(SGD{}, {}),
            "[optim] there is nothing to optimize; expected at least one parameter; got none");
  EXPECT_EQ(refusal(SGD{}, {{"a", p}, {"a", torch::zeros({2})}}),
            "[optim] two parameters have one name; expected unique names; got a twice");
  EXPECT_EQ(
      refusal(SGD{}, {{"a", p}, {"b", p}}),
      "[optim] a parameter is given twice; expected each tensor once; got b, which is the same tensor as a");
  EXPECT_EQ(refusal(SGD{}, {{"a", {}}}),
            "[optim] parameter a cannot be optimized; expected a tensor; got an undefined one");
  EXPECT_EQ(
      refusal(SGD{}, {{"a", torch::zeros({2}, at::kInt)}}),
      "[optim] parameter a cannot be optimized; expected float64, float32, float16 or bfloat16; got Int");
  EXPECT_EQ(refusal(SGD{}, {{"a", p.to_sparse()}}),
            "[optim] parameter a cannot be optimized; expected a dense tensor; got Sparse");
  EXPECT_EQ(refusal(SGD{}, {{"a", torch::zeros({2}, at::kMeta)}}),
            "[optim] parameter a cannot be optimized; expected a tensor on the CPU; got one on meta");
}

TEST(Optimizer, RefusesGradientsItCannotUseAndChangesNothing) {
  auto model = optim_test::model();
  auto optimizer = OptimizerFactory(AdamW{}).create(parameters_of(model));
  optim_test::set_gradients(model, 0);
  const auto before = model[0].detach().clone();
  model[1].mutable_grad() = torch::ones({13}).to_sparse();
  EXPECT_EQ(error_of<ConfigError>([&] { optimizer->step(); }),
            "[optim] the gradient of p1 cannot be used; expected a dense gradient; got a sparse one "
            "(Sparse); build the "
            "embedding with sparse(false)");
  EXPECT_TRUE(torch::equal(model[0], before));
  EXPECT_EQ(optim_test::state_of(*optimizer, "p0", "step").item<int>(), 0);
}

}  // namespace
}  // namespace lockstep
