// What strategies that shard add to their engine; what ranks do is in tests/fabric.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/parallel/sharded/sharded_modules.h>
#include <lockstep/parallel/zero.h>
#include <lockstep/precision/grad_scaler.h>
#include <lockstep/precision/precision_options.h>
#include <lockstep/strategy/strategy.h>
#include <lockstep/strategy/strategy_options.h>
#include <lockstep/torch.h>

#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "strategy/scaled_step.h"
#include "support/expect_error.h"
#include "support/file_size_limit.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

using NamedWeights = std::map<std::string, at::Tensor>;

struct Clipped {
  explicit Clipped(const StrategyOptions& choice, Precision* precision = nullptr)
      : strategy(make_strategy(choice, 1)) {
    if (precision != nullptr) strategy->set_precision(*precision);
    torch::manual_seed(3);
    module = std::make_shared<torch::nn::LinearImpl>(64, 32);
    strategy->setup_module(module);
    optimizer = strategy->setup_optimizer(*module, AdamW{.lr = 0.1, .weight_decay = 0.1});
  }
  void backward(double scale, Precision* precision = nullptr) {
    torch::nn::Module* const synced[] = {module.get()};
    auto loss = module->forward(torch::full({2, 64}, scale)).to(at::kFloat).pow(2).sum();
    if (precision != nullptr) loss = detail::scaled_loss(*precision, loss);
    strategy->backward(loss, synced);
  }
  double clip(double norm) { return strategy->clip_gradients(*optimizer, {.value = norm}); }
  std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> gradients;
    for (const auto& parameter : optimizer->parameters())
      gradients.push_back(parameter.tensor.grad().clone());
    return gradients;
  }

  std::shared_ptr<Strategy> strategy;
  std::shared_ptr<torch::nn::LinearImpl> module;
  std::unique_ptr<Optimizer> optimizer;
};

// The weights after two steps, each of which `make_gradients`.
NamedWeights weights_after(const StrategyOptions& choice,
                           const std::function<void(Clipped&)>& make_gradients) {
  Clipped run(choice);
  for (int step = 0; step < 2; ++step) {
    run.optimizer->zero_grad();
    make_gradients(run);
    run.strategy->optimizer_step(*run.optimizer);
  }
  return run.strategy->module_state(*run.module);
}

void expect_ddps_bits(const std::function<void(Clipped&)>& make_gradients) {
  const auto expected = weights_after(Ddp{}, make_gradients), found = weights_after(Fsdp{}, make_gradients);
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(found.at(name).equal(tensor)) << name;
}

TEST(DeferredScales, AreLeftToTheStep) {
  Clipped run(Fsdp{});
  run.backward(1);
  const auto before = run.gradients();
  EXPECT_GT(run.clip(0.1), 1);
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(run.gradients()[i].equal(before[i]));
  EXPECT_NEAR(run.strategy->grad_norm(*run.optimizer), 0.1, 1e-6);
  run.strategy->clip_gradients(*run.optimizer, {.value = 1, .algorithm = ClipAlgorithm::kValue});
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_FALSE(run.gradients()[i].equal(before[i]));
}

TEST(DeferredScales, HaveTheBitsOfDdp) {
  expect_ddps_bits([](Clipped& run) {
    run.backward(1);
    run.clip(0.1);
  });
}

TEST(DeferredScales, ComeBeforeWhatIsAddedAndClippedLater) {
  expect_ddps_bits([](Clipped& run) {
    run.backward(1);
    run.clip(0.1);
    run.backward(0.01);
  });
  expect_ddps_bits([](Clipped& run) {
    run.backward(1);
    run.clip(0.1);
    run.clip(0.05);
    run.strategy->clip_gradients(*run.optimizer, {.value = 1e-3, .algorithm = ClipAlgorithm::kValue});
  });
}

TEST(ShardedSteps, RefuseGradientsThatNoBackwardHasAveraged) {
  Clipped run(Fsdp{});
  const auto step = [&] { run.strategy->optimizer_step(*run.optimizer); };
  step();  // without any gradient, as elsewhere
  run.strategy->backward(run.module->forward(torch::ones({2, 64})).sum(), {});
  for (const auto& act : {std::function<void()>(step), std::function<void()>([&] { run.clip(0.1); })})
    test::expect_error<ConfigError>(act, {"before gradients are averaged", "weight", "no_backward_sync()"});
  run.backward(1);
  EXPECT_GT(run.clip(0.1), 1);
  step();
}

TEST(DeferredScales, GoWithTheGradients) {
  expect_ddps_bits([](Clipped& run) {
    run.backward(1);
    run.clip(0.1);
    run.optimizer->zero_grad();
    run.backward(0.01);
  });
}

TEST(DeferredScales, ServeStepsWithAClosure) {
  const auto weights = [](const StrategyOptions& choice) {
    Clipped run(choice);
    const auto loss = run.strategy->optimizer_step_with(*run.optimizer, [&] {
      run.optimizer->zero_grad();
      run.backward(1);
      run.clip(0.1);
      return 7.0;
    });
    EXPECT_EQ(loss, 7);
    run.backward(1);  // with the new weights
    run.strategy->optimizer_step(*run.optimizer);
    return run.strategy->module_state(*run.module);
  };
  const auto expected = weights(Ddp{}), found = weights(Fsdp{});
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(found.at(name).equal(tensor)) << name;
}

// As a checkpoint within a window of manual optimisation does.
TEST(AccumulatingParameters, HaveWhatIsAveragedAndWhatWaits) {
  for (const std::string text : {"none", "{param_dtype: bfloat16, keep_low_precision_grads: true}"}) {
    const Fsdp options{.mixed_precision = OptionType<MixedPrecisionChoice>::parse(text).value()};
    const auto begun = [&](bool restores) {
      Clipped run(options);
      if (restores) return run;
      run.backward(1);
      run.module->forward(torch::ones({2, 64})).to(at::kFloat).sum().backward();
      return run;
    };
    auto first = begun(false), other = begun(true);
    const auto saved = first.strategy->accumulating_parameters(*first.module);
    const auto wanted = other.strategy->accumulating_parameters(*other.module);
    ASSERT_EQ(saved.size(), 4U);
    ASSERT_EQ(wanted.size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) {
      ASSERT_TRUE(saved[i].tensor.grad().defined()) << saved[i].name;
      ASSERT_EQ(saved[i].name, wanted[i].name);
      wanted[i].tensor.mutable_grad() = saved[i].tensor.grad().clone();
    }
    for (auto* run : {&first, &other}) {
      run->backward(0.5);
      run->strategy->optimizer_step(*run->optimizer);
    }
    const auto expected = first.strategy->module_state(*first.module);
    for (const auto& [name, tensor] : other.strategy->module_state(*other.module))
      EXPECT_TRUE(tensor.equal(expected.at(name))) << name << " with mixed_precision " << text;
  }
}

TEST(DeferredScales, TakeTheLossScaleOutInTheStepOfDeepSpeed) {
  for (const double scale : {64.0, 96.0}) {
    const auto weights = [&](bool by_hand) {
      const auto precision = make_precision(Fp16Mixed{});
      Clipped run(DeepSpeed{.stage = 2, .loss_scale = scale}, precision.get());
      for (int step = 0; step < 2; ++step) {
        run.optimizer->zero_grad();
        run.backward(0.1, precision.get());
        const auto before = run.gradients();
        if (by_hand) precision->grad_scaler()->unscale(*run.optimizer);
        const auto norm = detail::clip_gradients(*run.strategy, *precision, *run.optimizer, {.value = 0.1});
        EXPECT_NEAR(norm * scale, at::cat({before[0].flatten(), before[1]}).norm().item<double>(),
                    1e-3 * scale);
        EXPECT_NEAR(run.strategy->grad_norm(*run.optimizer), 0.1, 1e-6);
        const bool is_left = !by_hand && scale == 64;  // a power of two rounds nothing
        EXPECT_EQ(run.gradients()[0].equal(before[0]), is_left) << scale;
        EXPECT_TRUE(detail::step_optimizer(*run.strategy, *precision, *run.optimizer));
      }
      run.optimizer->zero_grad();
      run.backward(std::numeric_limits<double>::infinity(), precision.get());
      EXPECT_FALSE(detail::step_optimizer(*run.strategy, *precision, *run.optimizer));
      return run.strategy->module_state(*run.module);
    };
    const auto expected = weights(true), found = weights(false);
    for (const auto& [name, tensor] : expected) EXPECT_TRUE(found.at(name).equal(tensor)) << name;
  }
}

TEST(OverflowWithoutAScale, LeavesStepsOutInBf16) {
  using ::testing::HasSubstr;
  for (const int stage : {1, 2, 3}) {
    const auto precision = make_precision(Bf16Mixed{});
    Clipped run(DeepSpeed{.stage = stage}, precision.get());
    ASSERT_EQ(precision->grad_scaler() != nullptr, stage < 3) << "as in DeepSpeed";
    if (stage == 3) continue;
    const auto weights = [&] {
      return run.strategy->module_state(*run.module).at("weight").to(at::kFloat).clone();
    };
    const auto step = [&](double scale) {
      run.optimizer->zero_grad();
      run.backward(scale, precision.get());
      return detail::step_optimizer(*run.strategy, *precision, *run.optimizer);
    };
    EXPECT_TRUE(step(1));
    const auto before = weights();
    ::testing::internal::CaptureStderr();
    EXPECT_FALSE(step(std::numeric_limits<double>::infinity()));
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("optimizer step 2 was left out"));
    EXPECT_TRUE(weights().equal(before));
    EXPECT_TRUE(step(1)) << "the scale stays";
    EXPECT_FALSE(weights().equal(before));
    EXPECT_EQ(precision->grad_scaler()->get_scale(), 1);
    EXPECT_EQ(precision->grad_scaler()->skipped_steps(), 1);
  }
}

struct OwnMixedPrecision final : Precision {
  std::string_view name() const override { return "own"; }
  at::ScalarType compute_dtype() const override { return at::kBFloat16; }
};

TEST(FsdpStrategy, GathersInWhatThePrecisionComputesIn) {
  const at::NoGradGuard no_grad;
  OwnMixedPrecision own;
  const auto input = at::ones({2, 64});
  EXPECT_EQ(Clipped(Fsdp{}, &own).module->forward(input.to(at::kBFloat16)).scalar_type(), at::kBFloat16);
  EXPECT_EQ(Clipped(Fsdp{}).module->forward(input).scalar_type(), at::kFloat);
}

TEST(OverflowWithoutAScale, BelongsToOneRunAfterTheOther) {
  const auto precision = make_precision(Bf16Mixed{});
  for (int run = 0; run < 2; ++run) {
    const auto strategy = make_strategy(DeepSpeed{.stage = 1}, 1);
    strategy->set_precision(*precision);
    EXPECT_EQ(precision->grad_scaler()->get_scale(), 1) << "it is no loss scale of fp16";
  }
  auto state = precision->state();
  state.set("_skipped_steps", std::int64_t{3});
  precision->load_state(state);
  EXPECT_EQ(precision->grad_scaler()->total_skipped_steps(), 3);
}

// Of gradients, too: no step or backward finds the disk full.
TEST(StateOnDisk, HasItsRoomBeforeTheFirstStep) {
  const test::TemporaryFolder folder;
  for (const bool with_optimizer : {true, false}) {
    DeepSpeed options{.stage = 3, .offload_optimizer = with_optimizer, .offload_parameters = true};
    options.offload_params_device = deepspeed::OffloadDevice::kNvme;
    options.offload_optimizer_device = deepspeed::OffloadDevice::kNvme;
    options.nvme_path = folder.path();
    const auto strategy = make_strategy(options, 1);
    const auto module = std::make_shared<torch::nn::LinearImpl>(300, 300);
    strategy->setup_module(module);
    const test::FileSizeLimit limit(64 << 10);
    test::expect_error<IoError>([&] { strategy->setup_optimizer(*module, AdamW{}); },
                                {"no room", "limit of 65536", folder.path().string()});
  }
}

// What clipping has left to the step is of the gradients that were there.
TEST(CoalesceGradReduction, AddsToGradientsAsTheyAreByThen) {
  expect_ddps_bits([](Clipped& run) {
    run.backward(1);
    run.clip(0.1);
    if (sharded_engines(*run.module).empty()) return run.backward(0.01);
    deepspeed::CoalesceGradReduction together(*run.module);
    run.backward(0.01);
    together.close();
  });
}

TEST(CoalesceGradReduction, LeavesGradientsToTheNextBackwardWithoutClose) {
  const auto gradients = [](bool is_coalesced) {
    Clipped run(Fsdp{});
    if (is_coalesced) {
      ::testing::internal::CaptureStderr();
      {
        const deepspeed::CoalesceGradReduction together(*run.module);
        run.backward(1);
      }
      EXPECT_THAT(::testing::internal::GetCapturedStderr(), ::testing::HasSubstr("without close()"));
    } else {
      run.backward(1);
    }
    run.backward(0.5);
    return run.gradients();
  };
  const auto expected = gradients(false), found = gradients(true);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(found[i].allclose(expected[i])) << i;
}

TEST(CoalesceGradReduction, RefusesStepsAndScopesInside) {
  Clipped run(DeepSpeed{.stage = 2});
  deepspeed::CoalesceGradReduction together(*run.module);
  run.backward(1);
  test::expect_error<ConfigError>([&] { run.strategy->optimizer_step(*run.optimizer); },
                                  {"AdamW", "close()", "averaged"});
  test::expect_error<ConfigError>([&] { run.clip(0.1); }, {"clip_gradients()", "close()"});
  test::expect_error<ConfigError>([&] { deepspeed::CoalesceGradReduction inside(*run.module); },
                                  {"one scope at a time"});
  together.close();
  together.close();
  run.strategy->optimizer_step(*run.optimizer);
  const auto plain = std::make_shared<torch::nn::LinearImpl>(2, 2);
  test::expect_error<ConfigError>([&] { deepspeed::CoalesceGradReduction of_plain(*plain); },
                                  {"not sharded", "no_backward_sync"});
}

// By a configuration, written to `file`, that does not ignore unused parameters.
Clipped after_backward_of_the_bias(const std::filesystem::path& file, int stage) {
  std::ofstream(file) << R"({"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": )" << stage
                      << R"(, "ignore_unused_parameters": false}})";
  Clipped run(DeepSpeed{.config = file});
  torch::nn::Module* const synced[] = {run.module.get()};
  run.strategy->backward(run.module->bias.sum(), synced);
  return run;
}

TEST(UnusedParameters, FailAStepWhereTheFileSaysSo) {
  const test::TemporaryFolder folder;
  for (const int stage : {1, 2}) {
    auto run = after_backward_of_the_bias(folder.path() / "ds_config.json", stage);
    test::expect_error<CommError>(
        [&] { run.strategy->optimizer_step(*run.optimizer); },
        {"ignore_unused_parameters", "ds_config.json:1:", "none for weight", "freeze"});
    run.module->weight.set_requires_grad(false);  // for a while
    run.strategy->optimizer_step(*run.optimizer);
    run.module->weight.set_requires_grad(true);
    run.optimizer->zero_grad();
    run.backward(1);
    run.strategy->optimizer_step(*run.optimizer);
  }
}

TEST(UnusedParameters, ArePutUpWithAtOtherStages) {
  const test::TemporaryFolder folder;
  for (const int stage : {0, 3}) {
    auto run = after_backward_of_the_bias(folder.path() / "ds_config.json", stage);
    run.strategy->optimizer_step(*run.optimizer);
  }
}

// As they have no piece of it.
TEST(ReleasedModules, NameWhatNoOptimizerHas) {
  for (const bool is_held : {false, true}) {
    const auto strategy = make_strategy(Fsdp{}, 1);
    const auto module = std::make_shared<torch::nn::LinearImpl>(8, 8);
    module->bias.set_requires_grad(is_held);
    strategy->setup_module(module);
    const auto optimizer = strategy->setup_optimizer(*module, SGD{});
    for (const bool is_trained : {false, true}) {
      strategy->release_module(*module);
      module->bias.set_requires_grad(is_trained);
      ::testing::internal::CaptureStderr();
      strategy->setup_module(module);
      const auto said = ::testing::internal::GetCapturedStderr();
      EXPECT_EQ(said.find("none of its optimizers") != std::string::npos, is_trained && !is_held) << said;
      EXPECT_EQ(said.find(": bias") != std::string::npos, is_trained && !is_held) << said;
    }
  }
}

// Its gradients have their place already.
TEST(StateOnDisk, IsAskedForOnceByTwoRuns) {
  const test::TemporaryFolder folder;
  DeepSpeed options{.stage = 3, .offload_parameters = true};
  options.offload_params_device = deepspeed::OffloadDevice::kNvme;
  options.nvme_path = folder.path();
  const auto module = std::make_shared<torch::nn::LinearImpl>(300, 300);
  const auto first = make_strategy(options, 1), second = make_strategy(options, 1);
  first->setup_module(module);
  const auto optimizer = first->setup_optimizer(*module, AdamW{});
  first->teardown();
  const test::FileSizeLimit limit(64 << 10);
  second->setup_module(module);
  EXPECT_NE(second->setup_optimizer(*module, AdamW{}), nullptr);
}

TEST(MixedPrecisionOfFsdp, KeepsWhatIsSaidOfArguments) {
  const auto text = [](const MixedPrecisionChoice& choice) {
    return OptionType<MixedPrecisionChoice>::print(choice);
  };
  const auto own = OptionType<MixedPrecisionChoice>::parse("{cast_forward_inputs: false}").value();
  EXPECT_FALSE(own.is_none());
  EXPECT_EQ(text(own), "{cast_forward_inputs: false}");
  const auto precision = make_precision(Bf16Mixed{});
  Clipped run(Fsdp{.mixed_precision = own}, precision.get());
  const auto engine = sharded_engines(*run.module).front();
  EXPECT_EQ(
      text(engine->plan().mixed_precision),
      "{param_dtype: bfloat16, reduce_dtype: bfloat16, buffer_dtype: bfloat16, cast_forward_inputs: false}");
}

TEST(MixedPrecisionOfFsdp, KeepsGradientsInTheTypeOfThePrecision) {
  const auto kept = OptionType<MixedPrecisionChoice>::parse("{keep_low_precision_grads: true}").value();
  for (const bool is_half : {false, true}) {
    const auto precision =
        is_half ? make_precision(Fp16Mixed{.scaler = {.init_scale = 64}}) : make_precision(Bf16Mixed{});
    Clipped run(Fsdp{.mixed_precision = kept}, precision.get());
    const auto before = run.strategy->module_state(*run.module).at("weight").clone();
    run.backward(1, precision.get());
    for (const auto& gradient : run.gradients())
      EXPECT_EQ(gradient.scalar_type(), is_half ? at::kHalf : at::kBFloat16);
    EXPECT_GT(detail::clip_gradients(*run.strategy, *precision, *run.optimizer, {.value = 0.1}), 1);
    EXPECT_NEAR(run.strategy->grad_norm(*run.optimizer), 0.1, 1e-3);
    EXPECT_TRUE(detail::step_optimizer(*run.strategy, *precision, *run.optimizer));
    EXPECT_FALSE(run.strategy->module_state(*run.module).at("weight").equal(before));
    run.optimizer->zero_grad();
    run.backward(std::numeric_limits<double>::infinity(), precision.get());
    EXPECT_EQ(detail::step_optimizer(*run.strategy, *precision, *run.optimizer), !is_half);
  }
}

TEST(MixedPrecisionOfFsdp, IsReadAndPrinted) {
  using Option = OptionType<MixedPrecisionChoice>;
  for (const std::string text :
       {"none", "{keep_low_precision_grads: true}", "{param_dtype: bfloat16, keep_low_precision_grads: true}",
        "{param_dtype: float16, reduce_dtype: float32, cast_forward_inputs: false}"})
    EXPECT_EQ(Option::print(Option::parse(text).value()), text);
  EXPECT_FALSE(Option::parse("bfloat16").value().value().keep_low_precision_grads);
  EXPECT_FALSE(Option::parse("{keep_low_precision_grads: 1}"));
  EXPECT_THAT(Option::accepted(), ::testing::HasSubstr("keep_low_precision_grads"));
}

}  // namespace
}  // namespace lockstep
