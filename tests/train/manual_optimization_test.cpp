// Modules that run backward and step their optimizers themselves.
#include <gmock/gmock.h>
#include <lockstep/lockstep.h>
#include <lockstep/testing/fork_ranks.h>

#include <fstream>

#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "train/trainer_rank.h"

namespace lockstep {
namespace {

namespace F = torch::nn::functional;
using ::testing::ElementsAre;

// Two layers, each with an optimizer of its own, that learn from the same batch in turn.
struct TwoWeightsImpl : Module<Example> {
  TwoWeightsImpl() {
    register_module("first", first);
    register_module("second", second);
  }
  bool automatic_optimization() const override { return is_automatic; }
  Optimizers configure_optimizers() override {
    return several_optimizers(
        {{.optimizer = SGD{.lr = 0.1},
          .lr_scheduler = LRScheduler{.scheduler = StepLR{.step_size = 1, .gamma = 0.5}},
          .module = names_modules ? first.ptr() : nullptr},
         {.optimizer = Adam{.lr = 0.1}, .module = names_modules ? second.ptr() : nullptr}});
  }
  torch::Tensor training_step(const Example& batch, StepContext& step) override {
    const auto output = second->forward(first->forward(batch.data));
    const auto loss = F::mse_loss(output, batch.target);
    if (act) act(batch, step, loss);
    return loss;
  }
  void on_before_backward(StepContext&, const at::Tensor&) override { calls.push_back("before_backward"); }
  void on_after_backward(StepContext&) override { calls.push_back("after_backward"); }
  void on_before_optimizer_step(StepContext& step) override {
    calls.push_back("before_step " + std::string(step.optimizer().name()));
  }
  void on_train_batch_end(StepContext& step, const TrainOutput& output) override {
    steps.push_back(step.global_step());
    losses.push_back(output.loss);
  }

  torch::nn::Linear first{2, 3};
  torch::nn::Linear second{3, 1};
  bool is_automatic = false;
  bool names_modules = true;
  std::function<void(const Example&, StepContext&, const torch::Tensor&)> act;
  std::vector<std::string> calls;
  std::vector<std::int64_t> steps;
  std::vector<double> losses;
};
TORCH_MODULE(TwoWeights);

class ManualOptimization : public ::testing::Test {
 protected:
  ManualOptimization() {
    torch::manual_seed(5);
    model_->first->reset_parameters();
    model_->second->reset_parameters();
  }
  TrainerOptions options() {
    TrainerOptions found{.max_epochs = 1, .num_sanity_val_steps = 0, .enable_progress_bar = false};
    found.enable_model_summary = false;
    found.run.run_dir = folder_ / "run";
    return found;
  }
  static Loader<Example> batches(std::int64_t count) {
    const auto rows = torch::arange(static_cast<float>(2 * count)).view({count, 2}) / 4;
    return loader(tensor_dataset(rows, rows.sum(1, true)), {.batch_size = 1});
  }
  void fit(std::int64_t count, TrainerOptions chosen) {
    Trainer(std::move(chosen)).fit(model_, batches(count));
  }
  void expect_refused(TrainerOptions chosen, const std::vector<std::string>& words) {
    test::expect_error<ConfigError>([&] { fit(1, std::move(chosen)); }, words);
  }

  test::TemporaryFolder folder_;
  TwoWeights model_;
};

TEST_F(ManualOptimization, StepsAsTrainingStepSays) {
  const auto before_first = model_->first->weight.detach().clone();
  const auto before_second = model_->second->weight.detach().clone();
  model_->act = [&](const Example&, StepContext& step, const torch::Tensor& loss) {
    auto optimizer = step.manual_optimizer(static_cast<std::size_t>(step.batch_idx() % 2));
    optimizer.zero_grad();
    step.manual_backward(loss);
    if (step.batch_idx() == 0) {
      // Nobody else steps: the weights are what SGD makes of them.
      const auto expected = before_first - 0.1 * model_->first->weight.grad();
      optimizer.step();
      EXPECT_TRUE(torch::equal(model_->first->weight, expected));
      EXPECT_TRUE(torch::equal(model_->second->weight, before_second));
    } else {
      optimizer.step();
    }
  };
  fit(3, options());
  EXPECT_FALSE(torch::equal(model_->second->weight, before_second));
  EXPECT_THAT(model_->steps, ElementsAre(1, 2, 3));
  EXPECT_GT(model_->losses[0], 0);
  EXPECT_EQ(model_->calls.size(), 9U);
  EXPECT_THAT(std::vector(model_->calls.begin(), model_->calls.begin() + 6),
              ElementsAre("before_backward", "after_backward", "before_step SGD", "before_backward",
                          "after_backward", "before_step Adam"));
}

TEST_F(ManualOptimization, EveryStepOfAnOptimizerCounts) {
  model_->act = [](const Example&, StepContext& step, const torch::Tensor& loss) {
    step.manual_backward(loss);
    step.manual_optimizer(0).step();
    step.manual_optimizer(1).step();
  };
  auto chosen = options();
  chosen.max_steps = 4;
  fit(10, chosen);
  EXPECT_THAT(model_->steps, ElementsAre(2, 4));
}

TEST_F(ManualOptimization, ToggledFreezesWhatOthersTrain) {
  model_->first->bias.set_requires_grad(false);
  model_->act = [&](const Example& batch, StepContext& step, const torch::Tensor&) {
    {
      const auto toggled = step.manual_optimizer(1).toggled();
      EXPECT_FALSE(model_->first->weight.requires_grad());
      EXPECT_TRUE(model_->second->weight.requires_grad());
      const auto output = model_->second->forward(model_->first->forward(batch.data));
      step.manual_backward(output.sum());
    }
    EXPECT_TRUE(model_->first->weight.requires_grad());
    EXPECT_FALSE(model_->first->bias.requires_grad());  // was so before
    EXPECT_FALSE(model_->first->weight.grad().defined());
    EXPECT_TRUE(model_->second->weight.grad().defined());
  };
  fit(1, options());
}

TEST_F(ManualOptimization, ClipsAndZeroesOneOptimizersGradients) {
  model_->act = [&](const Example&, StepContext& step, const torch::Tensor& loss) {
    step.manual_backward(loss * 100);
    const double norm = step.manual_optimizer(1).clip_gradients({.value = 0.5});
    EXPECT_GT(norm, 0.5);
    EXPECT_NEAR(grad_norm(model_->second->parameters()), 0.5, 1e-4);
    EXPECT_GT(grad_norm(model_->first->parameters()), 0.5);
    step.manual_optimizer(1).zero_grad();
    EXPECT_FALSE(model_->second->weight.grad().defined());
    EXPECT_TRUE(model_->first->weight.grad().defined());
  };
  fit(1, options());
}

TEST_F(ManualOptimization, ClippingLeavesWhatOverflowedToTheScaler) {
  const auto before = model_->first->weight.detach().clone();
  int batches_left = 2;
  model_->act = [&](const Example&, StepContext& step, const torch::Tensor& loss) {
    auto optimizer = step.manual_optimizer(0);
    optimizer.zero_grad();
    step.manual_backward(--batches_left > 0 ? loss * 1e37 : loss);
    optimizer.clip_gradients({.value = 0.5, .error_if_nonfinite = true});
    optimizer.step();
    EXPECT_EQ(torch::equal(model_->first->weight, before), batches_left > 0);
  };
  auto chosen = options();
  chosen.precision = Fp16Mixed{.scaler = {.init_scale = 64}};
  fit(2, chosen);
  EXPECT_EQ(batches_left, 0);
}

TEST_F(ManualOptimization, NobodyElseStepsTheSchedule) {
  model_->act = [](const Example&, StepContext& step, const torch::Tensor& loss) {
    step.manual_backward(loss);
    step.manual_optimizer(0).step();
    if (step.batch_idx() == 1) step.manual_optimizer(0).lr_scheduler().step();
    EXPECT_DOUBLE_EQ(step.optimizers()[0].optimizer->groups()[0].lr, step.batch_idx() == 0 ? 0.1 : 0.05);
    test::expect_error<ConfigError>([&] { step.manual_optimizer(1).lr_scheduler(); }, {"lr_scheduler"});
  };
  fit(2, options());
}

TEST_F(ManualOptimization, ResumesAllOptimizersAndGradientsThatAddUp) {
  // A window of two batches, which only the module knows of.
  const auto act = [](const Example&, StepContext& step, const torch::Tensor& loss) {
    step.manual_backward(loss);
    if (step.batch_idx() % 2 == 0) return;
    for (const std::size_t i : {0U, 1U}) {
      step.manual_optimizer(i).step();
      step.manual_optimizer(i).zero_grad();
    }
  };
  model_->act = act;
  auto chosen = options();
  chosen.callbacks = {std::make_shared<LambdaCallback>(
      LambdaHooks{.on_train_batch_end = [&](StepContext& step, const TrainOutput&) {
        if (step.batch_idx() == 2) step.save_checkpoint(folder_ / "mid.ckpt");
      }})};
  fit(6, chosen);
  TwoWeights resumed;
  resumed->act = act;
  auto again = options();
  again.run.run_dir = folder_ / "again";
  Trainer(again).fit(resumed, batches(6), std::nullopt, (folder_ / "mid.ckpt").string());
  for (const auto& parameter : model_->named_parameters())
    EXPECT_TRUE(torch::equal(parameter.value(), resumed->named_parameters()[parameter.key()]))
        << parameter.key();
  EXPECT_EQ(resumed->steps.size(), 3U);
}

// DeepSpeed's engine clips before every step.
TEST_F(ManualOptimization, WhatAClosureGivesIsClippedAsDeepSpeedsFileSays) {
  const auto first_step = [&](const char* clipping) {
    std::ofstream(folder_ / "ds.json")
        << R"({"zero_optimization": {"stage": 1}, "gradient_clipping": )" << clipping << "}";
    auto chosen = options();
    chosen.strategy = DeepSpeed{.config = folder_ / "ds.json"};
    TwoWeights model;
    double moved = 0;
    model->names_modules = false;
    model->act = [&](const Example& batch, StepContext& step, const torch::Tensor&) {
      auto optimizer = step.manual_optimizer();
      const auto weight = [&] { return model->second->weight.detach().clone(); };
      const auto before = weight();
      optimizer.step([&] {
        optimizer.zero_grad();
        const auto loss =
            F::mse_loss(model->second->forward(model->first->forward(batch.data)), batch.target);
        step.manual_backward(loss);
        return loss;
      });
      moved = (weight() - before).abs().max().item<double>();
    };
    Trainer(chosen).fit(model, batches(1));
    return moved;
  };
  EXPECT_LE(first_step("1e-6"), 1e-6);
  EXPECT_GT(first_step("1e6"), 1e-4);
}

TEST_F(ManualOptimization, AClosureIsCalledAsOftenAsTheOptimizerWants) {
  int evaluations = 0;
  struct OneImpl : Module<Example> {
    OneImpl() { register_module("net", net); }
    bool automatic_optimization() const override { return false; }
    Optimizers configure_optimizers() override {
      return {.optimizer = LBFGS{.max_iter = 5, .line_search_fn = "strong_wolfe"}};
    }
    torch::Tensor training_step(const Example& batch, StepContext& step) override {
      auto optimizer = step.manual_optimizer();
      test::expect_error<ConfigError>([&] { optimizer.step(); }, {"LBFGS", "closure"});
      const double first = optimizer.step([&] {
        ++*evaluations;
        optimizer.zero_grad();
        const auto loss = F::mse_loss(net->forward(batch.data), batch.target);
        step.manual_backward(loss);
        return loss;
      });
      const double after = F::mse_loss(net->forward(batch.data), batch.target).item<double>();
      EXPECT_LT(after, first / 10);
      return {};
    }
    torch::nn::Linear net{2, 1};
    int* evaluations = nullptr;
  };
  const auto one = std::make_shared<OneImpl>();
  one->evaluations = &evaluations;
  Trainer trainer(options());
  trainer.fit(one, batches(1));
  EXPECT_GT(evaluations, 2);
  EXPECT_EQ(trainer.global_step(), 1);
}

TEST_F(ManualOptimization, AutomaticTakesAnOptimizerWithAClosureToo) {
  struct OneImpl : Module<Example> {
    OneImpl() { register_module("net", net); }
    Optimizers configure_optimizers() override { return {.optimizer = LBFGS{.max_iter = 5}}; }
    torch::Tensor training_step(const Example& batch, StepContext&) override {
      losses.push_back(0);
      const auto loss = F::mse_loss(net->forward(batch.data), batch.target);
      losses.back() = loss.item<double>();
      return loss;
    }
    torch::nn::Linear net{2, 1};
    std::vector<double> losses;
  };
  const auto one = std::make_shared<OneImpl>();
  Trainer trainer(options());
  trainer.fit(one, batches(1));
  EXPECT_GT(one->losses.size(), 2U);
  EXPECT_LT(one->losses.back(), one->losses.front());
  EXPECT_EQ(trainer.global_step(), 1);
  auto accumulating = options();
  accumulating.accumulate_grad_batches = 2;
  test::expect_error<ConfigError>([&] { Trainer(accumulating).fit(one, batches(2)); },
                                  {"accumulate_grad_batches", "LBFGS", "2"});
  auto scaled = options();
  scaled.precision = Fp16Mixed{};
  test::expect_error<ConfigError>([&] { Trainer(scaled).fit(one, batches(2)); }, {"LBFGS", "scaler"});
}

TEST_F(ManualOptimization, UnderAutocastWeightsAreSeenAsTheyAre) {
  model_->act = [&](const Example& batch, StepContext& step, const torch::Tensor& loss) {
    step.manual_backward(loss);
    step.manual_optimizer(1).step();
    // A cast of the weights from before the step would give the old output.
    const auto again = model_->second->forward(model_->first->forward(batch.data));
    EXPECT_EQ(again.scalar_type(), at::kBFloat16);
    const torch::NoGradGuard no_grad;
    const auto hidden = model_->first->forward(batch.data);
    const auto expected =
        F::linear(hidden, model_->second->weight.to(at::kBFloat16), model_->second->bias.to(at::kBFloat16));
    EXPECT_TRUE(torch::equal(again, expected));
  };
  auto chosen = options();
  chosen.precision = Bf16Mixed{};
  fit(2, chosen);
}

TEST_F(ManualOptimization, RefusesWhatTheTrainerWouldDoItself) {
  auto accumulating = options();
  accumulating.accumulate_grad_batches = 2;
  expect_refused(accumulating, {"accumulate_grad_batches", "manual", "2"});
  auto clipping = options();
  clipping.gradient_clip_val = 0.5;
  expect_refused(clipping, {"gradient_clip_val", "manual", "0.5"});
  model_->is_automatic = true;
  expect_refused(options(), {"several optimizers", "automatic_optimization", "2"});
}

TEST_F(ManualOptimization, RefusesOptimizersThatDoNotFit) {
  model_->act = [](const Example&, StepContext& step, const torch::Tensor&) { step.manual_optimizer(2); };
  expect_refused(options(), {"manual_optimizer(2)", "2"});
  struct StrangerImpl : TwoWeightsImpl {
    Optimizers configure_optimizers() override {
      return several_optimizers(
          {{.optimizer = SGD{}, .module = first.ptr()}, {.optimizer = SGD{}, .module = other.ptr()}});
    }
    torch::nn::Linear other{1, 1};
  };
  test::expect_error<ConfigError>(
      [&] { Trainer(options()).fit(std::make_shared<StrangerImpl>(), batches(1)); }, {"no part", "Linear"});
  struct HalfNamedImpl : TwoWeightsImpl {
    Optimizers configure_optimizers() override {
      return several_optimizers({{.optimizer = SGD{}, .module = first.ptr()}, {.optimizer = SGD{}}});
    }
  };
  test::expect_error<ConfigError>(
      [&] { Trainer(options()).fit(std::make_shared<HalfNamedImpl>(), batches(1)); }, {"1 of 2"});
  struct SharingImpl : TwoWeightsImpl {
    Optimizers configure_optimizers() override {
      return several_optimizers(
          {{.optimizer = SGD{}, .module = first.ptr()}, {.optimizer = SGD{}, .module = shared_from_this()}});
    }
  };
  test::expect_error<ConfigError>(
      [&] { Trainer(options()).fit(std::make_shared<SharingImpl>(), batches(1)); },
      {"share a parameter", "first.weight"});
}

TEST_F(ManualOptimization, ItsFunctionsAreForManualOptimisationOnly) {
  struct OneImpl : Module<Example> {
    OneImpl() { register_module("net", net); }
    Optimizers configure_optimizers() override { return {.optimizer = SGD{}}; }
    torch::Tensor training_step(const Example& batch, StepContext& step) override {
      const auto loss = net->forward(batch.data).sum();
      test::expect_error<ConfigError>([&] { step.manual_backward(loss); }, {"manual_backward", "automatic"});
      test::expect_error<ConfigError>([&] { step.manual_optimizer(); }, {"manual_optimizer", "automatic"});
      return loss;
    }
    torch::nn::Linear net{2, 1};
  };
  Trainer(options()).fit(std::make_shared<OneImpl>(), batches(1));
}

TEST_F(ManualOptimization, AModuleWithoutOptimizersTrainsNothing) {
  struct OneImpl : Module<Example> {
    OneImpl() { register_module("net", net); }
    bool automatic_optimization() const override { return false; }
    Optimizers configure_optimizers() override { return {}; }
    torch::Tensor training_step(const Example& batch, StepContext& step) override {
      step.manual_backward(net->forward(batch.data).sum());
      return {};
    }
    torch::nn::Linear net{2, 1};
  };
  Trainer trainer(options());
  trainer.fit(std::make_shared<OneImpl>(), batches(2));
  EXPECT_EQ(trainer.global_step(), 0);
}

std::vector<double> numbers(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<double>(stream), {}};
}

// What ranks make of a pair whose optimizers step in turn; each rank has every world_size-th sample.
std::string weights_after_turns(TrainerOptions chosen, bool names_modules, bool toggles,
                                std::int64_t batch_size) {
  torch::manual_seed(5);
  TwoWeights model;
  model->names_modules = names_modules;
  model->act = [&](const Example& batch, StepContext& step, const torch::Tensor&) {
    for (const std::size_t i : {0U, 1U}) {
      auto optimizer = step.manual_optimizer(i);
      const std::unique_ptr<ToggledOptimizer> toggled(toggles ? new ToggledOptimizer(optimizer.toggled())
                                                              : nullptr);
      optimizer.zero_grad();
      const auto output = model->second->forward(model->first->forward(batch.data));
      step.manual_backward(F::mse_loss(output, batch.target));
      optimizer.clip_gradients({.value = 0.7});
      optimizer.step();
    }
  };
  chosen.max_epochs = 2;
  chosen.enable_progress_bar = chosen.enable_model_summary = chosen.enable_checkpointing = false;
  const auto rows = torch::arange(16.0F).view({8, 2}) / 8;
  Trainer(std::move(chosen))
      .fit(model, loader(tensor_dataset(rows, rows.sum(1, true)), {.batch_size = batch_size}));
  std::ostringstream text;
  text.precision(9);
  for (const auto& parameter : model->parameters()) {
    for (const float value :
         std::vector<float>(parameter.data_ptr<float>(), parameter.data_ptr<float>() + parameter.numel()))
      text << value << ' ';
  }
  return text.str();
}

struct Turns {
  bool names_modules;
  bool toggles;
};

LOCKSTEP_RANK_BODY(turns_of_two_optimizers)(Communicator comm, std::string argument)->std::string {
  testing::become_trainer_rank(comm);
  TrainerOptions options{.strategy = Ddp{.find_unused_parameters = argument[0] == '0'},
                         .devices = comm.size()};
  options.run.run_dir = argument.substr(2);
  return weights_after_turns(options, argument[0] == '1', argument[1] == '1', 2);
}

TEST_F(ManualOptimization, OfTwoRanksIsThatOfOneWithBothBatches) {
  for (const auto& [names_modules, toggles] : {Turns{true, true}, Turns{true, false}, Turns{false, true}}) {
    auto alone = options();
    const auto expected = numbers(weights_after_turns(alone, names_modules, toggles, 4));
    const auto argument =
        std::string(names_modules ? "1" : "0") + (toggles ? "1" : "0") + (folder_ / "ranks").string();
    const auto ranks = testing::fork_ranks(2, "turns_of_two_optimizers", argument);
    ASSERT_EQ(ranks.size(), 2U);
    EXPECT_EQ(ranks[0].result, ranks[1].result);
    const auto found = numbers(ranks[0].result);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], 2e-6) << names_modules << toggles;
  }
}

// Both optimizers wait for two batches; a run that ends after three has gradients that wait for a step.
void fit_with_open_window(TrainerOptions chosen, std::int64_t batch_size, std::int64_t max_epochs,
                          const std::string& from) {
  TwoWeights model;
  model->act = [](const Example&, StepContext& step, const torch::Tensor& loss) {
    step.manual_backward(loss);
    for (const std::size_t i : {0U, 1U}) {
      if (step.batch_idx() % 2 == 0) continue;
      step.manual_optimizer(i).step();
      step.manual_optimizer(i).zero_grad();
    }
  };
  chosen.max_epochs = max_epochs;
  chosen.enable_progress_bar = chosen.enable_model_summary = false;
  const auto rows = torch::arange(12.0F).view({6, 2}) / 8;
  Trainer(std::move(chosen))
      .fit(model, loader(tensor_dataset(rows, rows.sum(1, true)), {.batch_size = batch_size}), {}, from);
}

LOCKSTEP_RANK_BODY(open_window_of_two_ranks)(Communicator comm, std::string folder)->std::string {
  testing::become_trainer_rank(comm);
  TrainerOptions options{.strategy = "ddp", .devices = comm.size()};
  options.run.run_dir = folder;
  fit_with_open_window(options, 1, 1, {});
  return {};
}

// They cannot be told from gradients of steps that are over, so that they are no error.
TEST_F(ManualOptimization, GradientsThatAreNotTakenOverAreTold) {
  auto alone = options();
  alone.devices = 1;
  alone.strategy = "fsdp";
  fit_with_open_window(alone, 2, 1, {});
  const auto said_when_going_on = [&](const std::string& strategy) {
    auto chosen = alone;
    chosen.strategy = strategy;
    ::testing::internal::CaptureStderr();
    fit_with_open_window(chosen, 2, 2, "last");
    return ::testing::internal::GetCapturedStderr();
  };
  const auto kWords = ::testing::HasSubstr("gradients of manual optimisation, which are not taken over");
  EXPECT_THAT(said_when_going_on("fsdp"), ::testing::Not(kWords));
  fit_with_open_window(alone, 2, 1, {});
  EXPECT_THAT(said_when_going_on("auto"), kWords);
  testing::fork_ranks(2, "open_window_of_two_ranks", (folder_ / "run").string());
  EXPECT_THAT(said_when_going_on("auto"), kWords);
}

// The second optimizer alone has a part, which the first part's layer feeds.
struct TrainedHeadImpl : Module<Example> {
  TrainedHeadImpl() {
    register_module("norm", norm);
    register_module("head", head);
  }
  torch::Tensor training_step(const Example& batch, StepContext&) override {
    return head->forward(norm->forward(batch.data)).mean();
  }
  Optimizers configure_optimizers() override {
    return several_optimizers({{.optimizer = SGD{}, .module = head.ptr()}});
  }

  torch::nn::BatchNorm1d norm{2};
  torch::nn::Linear head{2, 1};
};
TORCH_MODULE(TrainedHead);

LOCKSTEP_RANK_BODY(buffers_of_an_untrained_part)(Communicator comm, std::string argument)->std::string {
  testing::become_trainer_rank(comm);
  TrainerOptions options{.strategy = argument.substr(0, argument.find(' ')), .devices = comm.size()};
  options.max_epochs = 1;
  options.enable_progress_bar = options.enable_model_summary = options.enable_checkpointing = false;
  options.run.run_dir = argument.substr(argument.find(' ') + 1);
  TrainedHead model;
  const auto rows = torch::arange(16.0F).view({8, 2});
  Trainer(std::move(options)).fit(model, loader(tensor_dataset(rows, rows.sum(1, true)), {.batch_size = 2}));
  return c10::str(model->norm->running_mean);
}

TEST_F(ManualOptimization, BuffersOfPartsThatNoOptimizerTrainsFollowRank0) {
  for (const std::string strategy : {"ddp", "fsdp", "deepspeed_stage_2"}) {
    const auto ranks = testing::fork_ranks(2, "buffers_of_an_untrained_part",
                                           strategy + " " + (folder_ / strategy).string());
    ASSERT_EQ(ranks.size(), 2U);
    EXPECT_EQ(ranks[0].result, ranks[1].result) << strategy;
  }
}

}  // namespace
}  // namespace lockstep
