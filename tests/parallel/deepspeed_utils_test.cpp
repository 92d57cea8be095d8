// safe_get_* and safe_set_*: the same values whatever the plan, and what is set is what training goes on
// with.
#include <gtest/gtest.h>

#include <lockstep/base/error.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/parallel/deepspeed_utils.h>
#include <lockstep/strategy/strategy.h>
#include <lockstep/strategy/strategy_options.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/torch.h>

#include <cmath>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

#include "zero_support.h"

namespace lockstep {
namespace {

using deepspeed::Dtype;
using deepspeed::safe_get_full_fp32_param;
using deepspeed::safe_get_full_grad;
using deepspeed::safe_get_full_optimizer_state;
using deepspeed::safe_get_local_fp32_param;
using deepspeed::safe_get_local_grad;
using deepspeed::safe_get_local_optimizer_state;
using deepspeed::safe_set_full_fp32_param;
using deepspeed::safe_set_full_grad;
using deepspeed::safe_set_full_optimizer_state;
using deepspeed::safe_set_local_fp32_param;
using deepspeed::safe_set_local_grad;
using deepspeed::safe_set_local_optimizer_state;
using deepspeed::safe_update_full_grad_vectorized;
using lockstep::testing::run_ranks;

at::Tensor input(Sharded& sharded, int step) {
  return share(batch(step), sharded.comm).repeat({1, 8}).narrow(1, 0, 75).to(sharded.dtype);
}

// A step of training but for its end.
std::unique_ptr<Optimizer> begun(Sharded& sharded) {
  auto optimizer = OptimizerFactory(AdamW{.lr = 1e-2}).create(sharded.engine->parameters());
  for (int step = 0; step < 2; ++step) {
    if (step == 1) sharded.engine->after_step();
    optimizer->zero_grad();
    sharded.engine->backward(sharded.model->forward(input(sharded, step)).to(at::kFloat).pow(2).mean());
    if (step == 0) optimizer->step();
  }
  return optimizer;
}

void expect_alike(const at::Tensor& found, const at::Tensor& expected, const std::string& what) {
  ASSERT_TRUE(found.defined()) << what;
  EXPECT_EQ(found.sizes(), expected.sizes()) << what;
  EXPECT_TRUE(found.equal(expected.to(found.scalar_type()))) << what;
}

TEST(SafeGet, IsWholeOnEveryRank) {
  for_each_plan([](Sharded& sharded) {
    const auto optimizer = begun(sharded);
    for (const auto& item : sharded.model->named_parameters()) {
      for (const auto& found : {safe_get_full_fp32_param(item.value()), safe_get_full_grad(item.value()),
                                safe_get_full_optimizer_state(item.value(), "exp_avg", *optimizer)}) {
        ASSERT_TRUE(found.defined()) << item.key();
        EXPECT_EQ(found.scalar_type(), at::kFloat);
        ASSERT_EQ(found.sizes(), item.value().sizes());
        const auto of_first = found.clone();
        sharded.comm.broadcast(of_first);
        EXPECT_TRUE(found.equal(of_first)) << item.key();
        EXPECT_GT(found.abs().max().item<float>(), 0) << item.key();
      }
      EXPECT_EQ(safe_get_full_optimizer_state(item.value(), "step", *optimizer).item<float>(), 1);
    }
  });
}

TEST(SafeGet, HasTheDigitsOfTheShards) {
  for_each_plan([](Sharded& sharded) {
    const auto optimizer = begun(sharded);
    std::map<std::string, at::Tensor> found;
    for (const auto& item : sharded.model->named_parameters())
      found[item.key()] = safe_get_full_fp32_param(item.value());
    for (const auto& [name, tensor] : sharded.masters()) expect_alike(found.at(name), tensor, name);
  });
}

// Against ranks that hold all of the model.
TEST(SafeGet, IsWhatDdpHas) {
  run_ranks(4, [](const Communicator& comm) {
    const auto plans = all_plans(4, Dtype::kFp32);
    Sharded whole(plans.front(), comm, Dtype::kFp32);
    const auto with_all = begun(whole);
    for (std::size_t i = 1; i < plans.size(); ++i) {
      Sharded sharded(plans[i], comm, Dtype::kFp32);
      const auto optimizer = begun(sharded);
      const auto expected = whole.model->parameters(), parameters = sharded.model->parameters();
      for (std::size_t p = 0; p < expected.size(); ++p) {
        const auto what = c10::str("plan ", i, " parameter ", p);
        expect_alike(safe_get_full_grad(parameters[p]), safe_get_full_grad(expected[p]), what);
        expect_alike(safe_get_full_optimizer_state(parameters[p], "exp_avg_sq", *optimizer),
                     safe_get_full_optimizer_state(expected[p], "exp_avg_sq", *with_all), what);
      }
    }
  });
}

TEST(SafeSet, IsWhatIsFoundAndComputedWith) {
  for_each_plan([](Sharded& sharded) {
    const auto optimizer = begun(sharded);
    const auto weight = sharded.model->blocks->at<ZeroBlock>(1).linear->weight;
    const auto value = at::arange(75 * 75, at::kFloat).remainder(64).view({75, 75});  // exact in 16 bits
    safe_set_full_grad(weight, value * 2);
    safe_set_full_optimizer_state(weight, value * 3, "exp_avg", *optimizer);
    safe_set_full_fp32_param(weight, value / 512);
    expect_alike(safe_get_full_optimizer_state(weight, "exp_avg", *optimizer), value * 3, "state");
    const auto masters = sharded.masters();
    if (sharded.is_rank(0)) expect_alike(masters.at("blocks.1.linear.weight"), value / 512, "masters");
    expect_alike(safe_get_full_grad(weight), value * 2, "gradient");
    const torch::NoGradGuard no_grad;
    EXPECT_TRUE((weight * 1).to(at::kFloat).equal(value / 512)) << "what operators see";
  });
}

TEST(SafeSet, ChangesTheStepThatComes) {
  for_each_plan([](Sharded& sharded) {
    const auto optimizer = begun(sharded);
    for (const auto& parameter : sharded.model->parameters()) {
      safe_set_full_grad(parameter, at::zeros(parameter.sizes()));
      safe_set_full_optimizer_state(parameter, at::zeros(parameter.sizes()), "exp_avg", *optimizer);
      safe_set_full_fp32_param(parameter, at::ones(parameter.sizes()));
    }
    for (auto& group : optimizer->groups()) group.weight_decay = 0;
    optimizer->step();
    sharded.engine->after_step();
    for (const auto& parameter : sharded.model->parameters())
      EXPECT_TRUE(safe_get_full_fp32_param(parameter).eq(1).all().item<bool>());
  });
}

TEST(SafeLocal, IsThisRanksRunOfTheWhole) {
  for_each_plan([](Sharded& sharded) {
    const auto optimizer = begun(sharded);
    for (const auto& parameter : sharded.model->parameters()) {
      const auto count = safe_get_local_fp32_param(parameter).numel();
      EXPECT_EQ(safe_get_local_grad(parameter).numel(), count);
      EXPECT_EQ(safe_get_local_optimizer_state(parameter, "exp_avg", *optimizer).numel(), count);
      safe_set_local_fp32_param(parameter, at::full({count}, 2));
      safe_set_local_grad(parameter, at::full({count}, 4));
      safe_set_local_optimizer_state(parameter, at::full({count}, 8), "exp_avg", *optimizer);
      EXPECT_TRUE(safe_get_full_fp32_param(parameter).eq(2).all().item<bool>());
      EXPECT_TRUE(safe_get_full_grad(parameter).eq(4).all().item<bool>());
      EXPECT_TRUE(safe_get_full_optimizer_state(parameter, "exp_avg", *optimizer).eq(8).all().item<bool>());
    }
  });
}

TEST(SafeUpdate, ReplacesGradientsOfAll) {
  for_each_plan([](Sharded& sharded) {
    const auto optimizer = begun(sharded);
    const auto parameters = sharded.model->parameters();
    std::vector<at::Tensor> before;
    for (const auto& parameter : parameters) before.push_back(safe_get_full_grad(parameter));
    safe_update_full_grad_vectorized(
        parameters, [](const at::Tensor& gradient, const at::Tensor&) { return gradient * 2; });
    for (std::size_t i = 0; i < parameters.size(); ++i)
      expect_alike(safe_get_full_grad(parameters[i]), before[i] * 2, c10::str(i));
  });
}

TEST(SafeGet, OfWhatIsNotSharded) {
  const auto model = make_zero_model();
  const auto weight = model->head->weight;
  EXPECT_FALSE(safe_get_full_grad(weight).defined());
  model->forward(at::ones({2, 75})).sum().backward();
  std::vector<NamedParameter> parameters;
  for (const auto& item : model->named_parameters()) parameters.push_back({item.key(), item.value()});
  const auto optimizer = OptimizerFactory(SGD{.lr = 1, .momentum = 0.5}).create(parameters);
  optimizer->step();
  expect_alike(safe_get_full_grad(weight), weight.grad(), "gradient");
  expect_alike(safe_get_full_optimizer_state(weight, "momentum_buffer", *optimizer), weight.grad(), "state");
  safe_set_full_fp32_param(weight, at::ones({3, 75}));
  EXPECT_TRUE(weight.eq(1).all().item<bool>());
  EXPECT_EQ(safe_get_local_fp32_param(weight).numel(), 3 * 75);
}

struct OneLayer {
  OneLayer() {
    strategy->setup_module(module);
    optimizer = strategy->setup_optimizer(*module, AdamW{.lr = 0.1});
  }
  void backward() {
    torch::nn::Module* const synced[] = {module.get()};
    strategy->backward(module->forward(at::ones({2, 64})).pow(2).sum(), synced);
  }

  std::shared_ptr<Strategy> strategy = make_strategy(Fsdp{}, 1);
  std::shared_ptr<torch::nn::LinearImpl> module = std::make_shared<torch::nn::LinearImpl>(64, 32);
  std::unique_ptr<Optimizer> optimizer;
};

// To look does nothing to what clipping has left to the step: another rank may not look.
TEST(SafeGet, SeesGradientsAsTheStepDoes) {
  OneLayer run;
  run.backward();
  const auto before = run.optimizer->parameters().front().tensor.grad().clone();
  EXPECT_GT(run.strategy->clip_gradients(*run.optimizer, {.value = 0.1}), 1);
  const auto& weight = run.module->weight;
  const auto all = at::cat({safe_get_full_grad(weight).flatten(), safe_get_full_grad(run.module->bias)});
  EXPECT_NEAR(all.norm().item<double>(), 0.1, 1e-6);
  expect_alike(safe_get_local_grad(weight), safe_get_full_grad(weight).flatten(), "local");
  EXPECT_TRUE(run.optimizer->parameters().front().tensor.grad().equal(before));
  safe_set_full_grad(weight, at::zeros({32, 64}));
  safe_set_full_grad(run.module->bias, at::ones({32}));
  EXPECT_NEAR(run.strategy->grad_norm(*run.optimizer), std::sqrt(32.0), 1e-6);
}

TEST(SafeGet, GivesWhatIsAveragedAlone) {
  OneLayer run;
  run.module->forward(at::ones({2, 64})).sum().backward();
  EXPECT_TRUE(run.module->weight.grad().defined());
  EXPECT_FALSE(safe_get_full_grad(run.module->weight).defined());
  EXPECT_FALSE(safe_get_local_grad(run.module->weight).defined());
  run.backward();
  EXPECT_TRUE(safe_get_full_grad(run.module->weight).defined());
}

TEST(SafeGet, TellsParametersOfOneNameApart) {
  OneLayer one, other;
  test::expect_error<ConfigError>(
      [&] { (void)safe_get_full_optimizer_state(one.module->weight, "exp_avg", *other.optimizer); },
      {"weight, which it does not", "one that this optimizer trains"});
}

TEST(SafeAccess, ReachesWhatLiesOnDisk) {
  const test::TemporaryFolder folder;
  run_ranks(2, [&](const Communicator& comm) {
    auto plan = all_plans(2, Dtype::kFp32).back();
    plan.offload = DiskOffload{.directory = folder.path(), .tile_elements = 2000};
    Sharded sharded(plan, comm, Dtype::kFp32);
    const auto optimizer = OptimizerFactory(AdamW{.lr = 1e-2}).create(sharded.engine->parameters());
    sharded.engine->offload_state(*optimizer);
    sharded.engine->backward(sharded.model->forward(input(sharded, 0)).pow(2).mean());
    const auto weight = sharded.model->blocks->at<ZeroBlock>(0).linear->weight;
    const auto value = at::arange(75 * 75, at::kFloat).view({75, 75});
    safe_set_full_fp32_param(weight, value);
    safe_set_full_grad(weight, at::zeros({75, 75}));
    safe_set_full_optimizer_state(weight, value * 2, "exp_avg", *optimizer);
    expect_alike(safe_get_full_fp32_param(weight), value, "parameter");
    optimizer->step();
    sharded.engine->after_step();
    const auto moved = safe_get_full_optimizer_state(weight, "exp_avg", *optimizer);
    EXPECT_TRUE(moved.allclose(value * 2 * 0.9));
  });
}

TEST(SafeAccess, NamesWhatIsNotThere) {
  for_each_plan([](Sharded& sharded) {
    const auto& weight = sharded.model->head->weight;
    const auto optimizer = begun(sharded);
    test::expect_error<ConfigError>(
        [&] {
          safe_set_full_fp32_param(weight, at::ones({75, 3}));
        },
        {"[3, 75]", "[75, 3]"});
    test::expect_error<ConfigError>(
        [&] { (void)safe_get_full_optimizer_state(weight, "momentum", *optimizer); },
        {"head.weight", "AdamW", "exp_avg, exp_avg_sq", "momentum"});
    const auto stranger = at::ones({2}, at::TensorOptions().requires_grad(true));
    test::expect_error<ConfigError>(
        [&] { (void)safe_get_full_optimizer_state(stranger, "exp_avg", *optimizer); },
        {"AdamW", "one that this optimizer trains"});
    test::expect_error<ConfigError>(
        [&] { (void)safe_get_full_fp32_param(optimizer->parameters().front().tensor); },
        {"a tensor of the module", "piece"});
    test::expect_error<ConfigError>([&] { (void)safe_get_full_grad({}); }, {"an undefined tensor"});
    optimizer->zero_grad();
    sharded.engine->drop_accumulated_gradients();
    EXPECT_FALSE(safe_get_full_grad(weight).defined());
    test::expect_error<ConfigError>(
        [&] {
          safe_set_full_grad(weight, at::ones({3, 75}));
        },
        {"after backward and before the step"});
  });
}

}  // namespace
}  // namespace lockstep
