// What is particular to Lion, Lamb and Muon.
#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/torch.h>

#include "optim/lamb_kernel.h"
#include "optim/support.h"
#include "support/expect_error.h"

namespace lockstep {
namespace {

using optim_test::parameters_of;
using Names = std::vector<std::string>;

std::vector<std::string> kinds_of(const OptimizerFactory& factory) {
  Names kinds;
  const auto optimizer = factory.create({{"weight", torch::ones({3, 2}).requires_grad_()}});
  for (const auto& entry : optimizer->state()) kinds.push_back(entry.kind);
  return kinds;
}

TEST(OptimizerKinds, NameTheirStateAsTorchAndDeepSpeedDo) {
  EXPECT_EQ(kinds_of(Adagrad{}), (Names{"step", "sum"}));
  EXPECT_EQ(kinds_of(Lion{}), (Names{"step", "exp_avg"}));
  EXPECT_EQ(kinds_of(Lamb{}), (Names{"step", "exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(kinds_of(Muon{}), (Names{"step", "momentum_buffer"}));
}

TEST(OptimizerKinds, SayWhetherAShardIsEnough) {
  const auto is_elementwise = [](const OptimizerFactory& factory) {
    return factory.create({{"weight", torch::ones({3, 2})}})->is_elementwise();
  };
  for (const OptimizerFactory& factory :
       {OptimizerFactory(SGD{}), OptimizerFactory(Adam{}), OptimizerFactory(AdamW{}),
        OptimizerFactory(Adagrad{}), OptimizerFactory(Lion{})}) {
    EXPECT_TRUE(is_elementwise(factory));
  }
  EXPECT_FALSE(is_elementwise(Lamb{}));
  EXPECT_FALSE(is_elementwise(Muon{}));
  EXPECT_FALSE(is_elementwise(LBFGS{}));
}

TEST(AdagradState, StartsAtTheValueGiven) {
  auto model = optim_test::model();
  const auto optimizer =
      OptimizerFactory(Adagrad{.initial_accumulator_value = 0.5}).create(parameters_of(model));
  for (const auto& name : {"p0", "p1", "p2"}) {
    const auto sum = optim_test::state_of(*optimizer, name, "sum");
    EXPECT_TRUE(torch::equal(sum, torch::full_like(sum, 0.5))) << name;
  }
}

TEST(LionStep, LeavesAloneWhatHasNoMomentum) {
  auto weight = torch::ones({3});
  const auto optimizer = OptimizerFactory(Lion{.lr = 0.25}).create({{"weight", weight}});
  weight.mutable_grad() = torch::tensor({0.0F, 2.0F, -1e-20F});
  optimizer->step();
  EXPECT_TRUE(torch::equal(weight, torch::tensor({1.0F, 0.75F, 1.25F}))) << weight;
}

TEST(LambKernel, GivesTheSameBitsForEveryInstructionSet) {
  constexpr std::int64_t kElements = 5003;
  torch::manual_seed(4);
  const auto start = torch::rand({4, kElements});
  torch::Tensor reference;
  for (const auto isa : {detail::Isa::kBaseline, detail::Isa::kAvx2, detail::Isa::kAvx512}) {
    if (isa > detail::best_isa()) continue;
    auto data = start.clone();
    float* row = data.data_ptr<float>();
    const detail::LambSegment<float> segment{row,
                                             row + kElements,
                                             row + 2 * kElements,
                                             row + 3 * kElements,
                                             kElements,
                                             {.weight_decay = 0.1, .step_size = 0.01}};
    std::vector<detail::LambSquares> blocks(5);
    detail::update_moments(segment, 0, kElements, isa, blocks.data());
    const auto sums = detail::sum_of(blocks);
    detail::apply_update(segment, 0, kElements, detail::trust_ratio(sums, segment.by), isa);
    if (!reference.defined()) reference = data;
    EXPECT_TRUE(torch::equal(data, reference)) << static_cast<int>(isa);
    EXPECT_NEAR(sums.param, start[0].to(at::kDouble).square().sum().item<double>(), 1e-9);
  }
  EXPECT_FALSE(torch::equal(reference, start));
}

TEST(LambKernel, TrustRatioIsBounded) {
  const detail::LambCoefficients by{.min_ratio = 0.5, .max_ratio = 2.0};
  EXPECT_EQ(detail::trust_ratio({.param = 9, .update = 4}, by), 1.5);
  EXPECT_EQ(detail::trust_ratio({.param = 100, .update = 1}, by), 2.0);
  EXPECT_EQ(detail::trust_ratio({.param = 1, .update = 100}, by), 0.5);
  EXPECT_EQ(detail::trust_ratio({.param = 0, .update = 1}, by), 1.0);
  EXPECT_EQ(detail::trust_ratio({.param = 1, .update = 0}, by), 1.0);
}

torch::Tensor after_lamb(int threads, at::ScalarType dtype) {
  const auto before = at::get_num_threads();
  at::set_num_threads(threads);
  torch::manual_seed(5);
  auto large = torch::randn({100003}).to(dtype), small = torch::randn({7}).to(dtype);
  const auto optimizer = OptimizerFactory(Lamb{.lr = 0.1}).create({{"large", large}, {"small", small}});
  for (int step = 0; step < 3; ++step) {
    large.mutable_grad() = torch::randn({100003}).to(dtype);
    small.mutable_grad() = torch::randn({7}).to(dtype);
    optimizer->step();
  }
  at::set_num_threads(before);
  return torch::cat({large, small});
}

TEST(LambStep, DoesNotDependOnThreads) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16})
    EXPECT_TRUE(torch::equal(after_lamb(1, dtype), after_lamb(2, dtype))) << dtype;
}

std::vector<NamedParameter> language_model() {
  const auto make = [](at::IntArrayRef shape) { return torch::ones(shape).requires_grad_(); };
  return {{"embed.weight", make({8, 4})},
          {"block.weight", make({4, 4})},
          {"block.bias", make({4})},
          {"LM_Head.weight", make({8, 4})}};
}

TEST(MuonGroups, KeepMatricesAndOthersApart) {
  const auto optimizer = OptimizerFactory(Muon{.lr = 0.5, .adam_lr = 0.1}).create(language_model());
  const auto& groups = optimizer->groups();
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].parameters, Names{"block.weight"});
  EXPECT_EQ(groups[0].lr, 0.5);
  EXPECT_EQ(groups[0].momentum, 0.95);
  EXPECT_FALSE(groups[0].betas);
  EXPECT_EQ(groups[1].parameters, (Names{"embed.weight", "block.bias", "LM_Head.weight"}));
  EXPECT_EQ(groups[1].lr, 0.1);
  EXPECT_EQ(groups[1].initial_lr, 0.1);
  EXPECT_FALSE(groups[1].momentum);
  EXPECT_EQ((*groups[1].betas)[1], 0.95);
}

TEST(MuonGroups, TakeTheirOwnSettings) {
  const Muon muon{.groups = {{.pattern = "block.*",
                              .lr = 0.3,
                              .weight_decay = 0.0,
                              .momentum = 0.7,
                              .betas = std::array{0.5, 0.6}}}};
  const auto optimizer = OptimizerFactory(muon).create(language_model());
  const auto& groups = optimizer->groups();
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].parameters, Names{"block.weight"});
  EXPECT_EQ(groups[0].momentum, 0.7);
  EXPECT_EQ(groups[1].parameters, Names{"block.bias"});
  EXPECT_EQ((*groups[1].betas)[0], 0.5);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(groups[i].lr, 0.3) << i;
    EXPECT_EQ(groups[i].weight_decay, 0.0) << i;
  }
  EXPECT_EQ(groups[2].parameters, (Names{"embed.weight", "LM_Head.weight"}));
  EXPECT_EQ(groups[2].lr, 3e-4);
}

TEST(MuonGroups, CannotGrow) {
  const auto optimizer = OptimizerFactory(Muon{}).create(language_model());
  test::expect_error<ConfigError>(
      [&] {
        optimizer->add_param_group({{"late", torch::ones({2, 2})}}, 0.1);
      },
      {"another group", "Muon"});
  EXPECT_EQ(optimizer->groups().size(), 2u);
}

TEST(MuonStep, IsNearlyOrthogonal) {
  torch::manual_seed(6);
  for (const auto& shape : std::vector<std::vector<std::int64_t>>{{16, 16}, {32, 8}, {8, 32}}) {
    auto weight = torch::zeros(shape);
    const auto optimizer = OptimizerFactory(Muon{.lr = 1, .weight_decay = 0}).create({{"weight", weight}});
    weight.mutable_grad() = torch::randn(shape);
    optimizer->step();
    const auto scale = std::sqrt(std::max(1.0, double(shape[0]) / double(shape[1])));
    const auto values = torch::linalg_svdvals(weight) / scale;
    EXPECT_GT(values.min().item<double>(), 0.3) << values;
    EXPECT_LT(values.max().item<double>(), 1.3) << values;
    EXPECT_LT((weight * weight.grad()).sum().item<double>(), 0);
  }
}

TEST(MuonStep, GoesOnFromItsState) {
  const auto parameters = language_model(), others = language_model();
  const auto first = OptimizerFactory(Muon{.lr = 0.1}).create(parameters);
  const auto second = OptimizerFactory(Muon{.lr = 0.1}).create(others);
  const auto step = [](Optimizer& optimizer, int seed) {
    torch::manual_seed(static_cast<std::uint64_t>(seed));
    for (const auto& [name, tensor] : optimizer.parameters())
      tensor.mutable_grad() = torch::randn(tensor.sizes());
    optimizer.step();
  };
  step(*first, 1);
  load_state(*second, state_of(*first));
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < others.size(); ++i) at::Tensor(others[i].tensor).copy_(parameters[i].tensor);
  step(*first, 2);
  step(*second, 2);
  for (std::size_t i = 0; i < others.size(); ++i)
    EXPECT_TRUE(torch::equal(parameters[i].tensor, others[i].tensor)) << parameters[i].name;
}

template <class Options>
std::string refused(const Options& options) {
  return optim_test::error_of<ConfigError>([&] { OptimizerFactory{options}; });
}

TEST(OptimizerKinds, RefuseOptionsByFieldAndValue) {
  const std::string not_negative = " is out of range; expected a finite number >= 0; got -1";
  EXPECT_EQ(refused(Adagrad{.lr = -1}), "[optim] Adagrad.lr" + not_negative);
  EXPECT_EQ(refused(Adagrad{.lr_decay = -1}), "[optim] Adagrad.lr_decay" + not_negative);
  EXPECT_EQ(refused(Adagrad{.initial_accumulator_value = -1}),
            "[optim] Adagrad.initial_accumulator_value" + not_negative);
  EXPECT_EQ(
      refused(Adagrad{.groups = {{.pattern = "*", .momentum = 0.9}}}),
      "[optim] Adagrad.groups[\"*\"].momentum is given; expected no momentum: Adagrad has none; got one");
  EXPECT_EQ(refused(Adagrad{.groups = {{.pattern = "*", .betas = std::array{0.9, 0.9}}}}),
            "[optim] Adagrad.groups[\"*\"].betas is given; expected no betas: Adagrad has none; got some");
  EXPECT_EQ(refused(Lion{.betas = {0.9, 1.0}}),
            "[optim] Lion.betas[1] is out of range; expected a number in [0, 1); got 1");
  EXPECT_EQ(refused(Lion{.weight_decay = -1}), "[optim] Lion.weight_decay" + not_negative);
  EXPECT_EQ(refused(Lamb{.eps = -1}), "[optim] Lamb.eps" + not_negative);
  EXPECT_EQ(refused(Lamb{.max_coeff = 0.001}),
            "[optim] Lamb.max_coeff is out of range; expected a number >= min_coeff; got 0.001");
  EXPECT_EQ(refused(Muon{.momentum = 1.5}),
            "[optim] Muon.momentum is out of range; expected a number in [0, 1]; got 1.5");
  EXPECT_EQ(refused(Muon{.ns_steps = 100}),
            "[optim] Muon.ns_steps is out of range; expected an integer from 1 to 99; got 100");
  EXPECT_EQ(refused(Muon{.adam_lr = -1}), "[optim] Muon.adam_lr" + not_negative);
  EXPECT_EQ(refused(Muon{.adam_betas = {1.0, 0.9}}),
            "[optim] Muon.adam_betas[0] is out of range; expected a number in [0, 1); got 1");
}

}  // namespace
}  // namespace lockstep
