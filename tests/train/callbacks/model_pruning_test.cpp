// Which weights are pruned (torch's masks), and that they stay so.
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>

#include <nlohmann/json.hpp>

#include "support/expect_error.h"
#include "support/paths.h"
#include "train/callbacks/pruning_mask.h"
#include "train/slope.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::SlopeTest;

nlohmann::json golden_pruning() {
  std::ifstream file(test::in_repository("tests/train/callbacks/golden_pruning.json"));
  return nlohmann::json::parse(file);
}

at::Tensor matrix(const nlohmann::json& rows) {
  std::vector<float> values;
  for (const auto& row : rows)
    for (const auto& value : row) values.push_back(value.get<float>());
  return torch::tensor(values).view({static_cast<std::int64_t>(rows.size()), -1});
}

void expect_masks(const std::string& name, const detail::PruningMethod& method,
                  const detail::Amount& amount) {
  const auto cases = golden_pruning();
  const auto weight = matrix(cases["weight"]);
  auto mask = torch::ones_like(weight);
  for (const auto& expected : cases[name]) {
    mask = detail::pruned_mask(method, weight, mask, amount);
    EXPECT_TRUE(torch::equal(mask, matrix(expected))) << name << "\n" << mask;
  }
}

TEST(PruningMask, IsTorchs) {
  expect_masks("l1_half", {}, 0.5);
  expect_masks("l1_three", {}, std::int64_t{3});
  expect_masks("ln_rows", {.is_structured = true, .dim = 0, .norm = 2}, std::int64_t{1});
  expect_masks("ln_columns", {.is_structured = true, .dim = -1, .norm = 1}, 0.5);
}

TEST(PruningMask, IsTorchsOfSeveralParametersTogether) {
  const auto cases = golden_pruning();
  const auto weight = matrix(cases["weight"]);
  const auto all = torch::cat({weight, weight * 2 + 0.015});
  auto mask = torch::ones_like(all);
  for (const auto& expected : cases["global"]) {
    mask = detail::pruned_mask({}, all, mask, 0.4);
    EXPECT_TRUE(torch::equal(mask, torch::cat({matrix(expected[0]), matrix(expected[1])})));
  }
}

TEST(PruningMask, RandomOnesHaveTheNumberAskedFor) {
  auto mask = torch::ones({4, 5});
  for (const std::int64_t left : {12, 4}) {
    mask = detail::pruned_mask({.is_random = true}, torch::ones({4, 5}), mask, std::int64_t{8});
    EXPECT_EQ(mask.sum().item<std::int64_t>(), left);
  }
  const auto slices = detail::pruned_mask({.is_random = true, .is_structured = true, .dim = 1}, mask,
                                          torch::ones({4, 5}), 0.4);
  EXPECT_EQ(slices.sum().item<int>(), 12);
  EXPECT_EQ(slices.sum(0).count_nonzero().item<int>(), 3);
}

TEST(PruningMask, RefusesWhatIsNoFraction) {
  for (const double amount : {5.0, -0.1, std::nan("")}) {
    test::expect_error<ConfigError>(
        [&] {
          detail::pruned_mask({}, torch::ones({2, 2}), torch::ones({2, 2}), amount);
        },
        {"amount", "[0, 1]"});
  }
}

TEST(PruningMask, RefusesMoreThanThereIs) {
  const auto weight = torch::ones({3});
  test::expect_error<ConfigError>([&] { detail::pruned_mask({}, weight, weight, std::int64_t{4}); },
                                  {"amount", "3", "4"});
  test::expect_error<ConfigError>([&] { detail::pruned_mask({.is_structured = true}, weight, weight, 0.5); },
                                  {"pruning_dim", "1 dimensions"});
}

struct TwoLayersImpl : Module<Example> {
  TwoLayersImpl() {
    torch::manual_seed(1);
    first = register_module("first", torch::nn::Linear(4, 3));
    second = register_module("second", torch::nn::Linear(3, 1));
  }
  torch::Tensor training_step(const Example& batch, StepContext&) override {
    return (second->forward(torch::tanh(first->forward(batch.data))) - 1).pow(2).mean();
  }
  void validation_step(const Example&, StepContext&) override {}
  Optimizers configure_optimizers() override { return {.optimizer = AdamW{.lr = 0.1, .weight_decay = 0.1}}; }
  torch::nn::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(TwoLayers);

class ModelPruningTest : public SlopeTest {
 protected:
  static std::shared_ptr<ModelPruning> pruning(ModelPruningOptions options) {
    if (options.pruning_fn.empty()) options.pruning_fn = "l1_unstructured";
    return std::make_shared<ModelPruning>(std::move(options));
  }
  TrainerOptions with(const std::shared_ptr<Callback>& callback, std::int64_t max_epochs) {
    auto chosen = options(max_epochs);
    chosen.callbacks = {callback};
    return chosen;
  }
  static Loader<Example> samples() {
    return loader(tensor_dataset(torch::sin(torch::arange(16.0F)).view({4, 4})), {.batch_size = 1});
  }
  static std::int64_t zeros_in(const torch::nn::Module& module) {
    std::int64_t zeros = 0;
    for (const auto& parameter : module.parameters())
      zeros += parameter.numel() - parameter.count_nonzero().item<std::int64_t>();
    return zeros;
  }
};

// 19 weights in all: 10 (half of them, to even), then half of 9.
TEST_F(ModelPruningTest, WhatIsPrunedStaysZero) {
  for (const std::int64_t epochs : {1, 2}) {
    TwoLayers model;
    Trainer(with(pruning({.use_lottery_ticket_hypothesis = false}), epochs)).fit(model, samples());
    EXPECT_EQ(zeros_in(*model), epochs == 1 ? 10 : 14);
  }
  const std::function<bool(std::int64_t)> first_epoch = [](std::int64_t epoch) { return epoch == 0; };
  TwoLayers model;
  const auto callback = pruning({.apply_pruning = first_epoch,
                                 .make_pruning_permanent = false,
                                 .use_lottery_ticket_hypothesis = false});
  Trainer(with(callback, 3)).fit(model, samples());
  EXPECT_EQ(zeros_in(*model), 10);
  EXPECT_DOUBLE_EQ(callback->sparsity(), 10.0 / 19);
}

TEST_F(ModelPruningTest, LooksAtAllParametersTogetherOrAtEach) {
  for (const bool together : {true, false}) {
    TwoLayers model;
    const auto callback = pruning({.parameter_names = {"weight"},
                                   .use_global_unstructured = together,
                                   .amount = 0.5,
                                   .make_pruning_permanent = false});
    {
      const torch::NoGradGuard no_grad;
      model->first->weight.fill_(3);
      model->second->weight.fill_(0.1);
    }
    auto chosen = with(callback, 1);
    chosen.limit_train_batches = 1;
    Trainer(chosen).fit(model, samples());
    std::vector<std::int64_t> left;
    for (const auto& [name, mask] : callback->masks())
      left.push_back(mask.count_nonzero().item<std::int64_t>());
    EXPECT_THAT(left, together ? ElementsAre(7, 0) : ElementsAre(6, 1));
    EXPECT_EQ(callback->masks()[1].first, "second.weight");
  }
}

TEST_F(ModelPruningTest, PrunesTheParametersItIsGiven) {
  TwoLayers model;
  Trainer(with(pruning({.parameters_to_prune = {"first.weight"}, .amount = 1.0}), 1)).fit(model, samples());
  EXPECT_EQ(zeros_in(*model), 12);
  EXPECT_EQ(model->first->weight.count_nonzero().item<int>(), 0);
  test::expect_error<ConfigError>(
      [&] { Trainer(with(pruning({.parameters_to_prune = {"first.wieght"}}), 1)).fit(model, samples()); },
      {"parameters_to_prune", "first.wieght", "first.weight"});
}

TEST_F(ModelPruningTest, CanBeFiltered) {
  struct OnlySecond final : ModelPruning {
    using ModelPruning::ModelPruning;
    std::vector<std::string> filter_parameters_to_prune(std::vector<std::string> names) const override {
      std::erase_if(names, [](const auto& name) { return !name.starts_with("second"); });
      return names;
    }
  };
  TwoLayers model;
  const auto callback = std::make_shared<OnlySecond>(ModelPruningOptions{.pruning_fn = "l1_unstructured"});
  Trainer(with(callback, 1)).fit(model, samples());
  EXPECT_EQ(zeros_in(*model), 2);
}

TEST_F(ModelPruningTest, AveragesHaveTheSameBitsWhereverCheckpointsAreTaken) {
  struct Saves final : Callback {
    explicit Saves(std::filesystem::path file) : folder(std::move(file)) {}
    void on_train_batch_end(StepContext& step, const TrainOutput&) override { step.save_checkpoint(folder); }
    std::filesystem::path folder;
  };
  const auto bits_with = [&](const std::shared_ptr<Callback>& saves) {
    torch::manual_seed(1);
    TwoLayers model;
    auto chosen = with(pruning({.amount = 0.5}), 2);
    chosen.enable_checkpointing = false;  // no others than those of `saves`
    chosen.callbacks.push_back(std::make_shared<EMAWeightAveraging>());
    if (saves) chosen.callbacks.push_back(saves);
    Trainer(chosen).fit(model, samples());
    return model->first->weight.detach().view(at::kInt).clone();
  };
  EXPECT_TRUE(torch::equal(bits_with(nullptr), bits_with(std::make_shared<Saves>(folder_ / "saved"))));
}

TEST_F(ModelPruningTest, AWinningTicketBeginsAnew) {
  TwoLayers model;
  const auto before = model->first->weight.detach().clone();
  auto chosen = with(pruning({.amount = 0.3, .make_pruning_permanent = false}), 1);
  Trainer(chosen).fit(model, samples());
  const auto lives = model->first->weight.detach() != 0;
  EXPECT_TRUE(torch::equal(model->first->weight.detach(), before * lives));
  EXPECT_GT(zeros_in(*model), 0);
}

TEST_F(ModelPruningTest, ATicketMayBeDrawnAnew) {
  TwoLayers model;
  const auto before = model->first->weight.detach().clone();
  Trainer(with(pruning({.amount = 0.3, .resample_parameters = true}), 1)).fit(model, samples());
  const auto weight = model->first->weight.detach();
  EXPECT_EQ((weight == before).sum().item<int>(), 0);
  EXPECT_LE(weight.abs().max().item<double>(), 0.5);  // Linear draws from +-1/sqrt(4)
}

TEST_F(ModelPruningTest, GoesOnWithItsMasks) {
  const auto run = [&](TwoLayers& model, std::int64_t epochs, const std::string& from = {}) {
    const std::function<bool(std::int64_t)> even = [](std::int64_t epoch) { return epoch % 2 == 0; };
    const auto callback = pruning({.amount = 0.2, .apply_pruning = even});
    Trainer(with(callback, epochs)).fit(model, samples(), std::nullopt, from);
  };
  TwoLayers whole;
  run(whole, 5);
  for (const std::int64_t epochs : {1, 2, 3}) {
    TwoLayers first, second;
    run(first, epochs);
    std::filesystem::rename(run_dir() / "checkpoints" / "last.ckpt", folder_ / "from.ckpt");
    torch::nn::init::ones_(second->first->weight);  // what is not the checkpoint's
    run(second, 5, folder_ / "from.ckpt");
    EXPECT_TRUE(module_state(*second) == module_state(*whole)) << epochs;
    std::filesystem::remove_all(folder_ / "from.ckpt");
  }
}

TEST_F(ModelPruningTest, PrunesAfterValidationsWhenAskedTo) {
  TwoLayers model;
  auto chosen = with(pruning({.prune_on_train_epoch_end = false}), 1);
  Trainer(chosen).fit(model, samples());
  EXPECT_EQ(zeros_in(*model), 0);
  chosen.num_sanity_val_steps = 1;
  Trainer(chosen).fit(model, samples(), samples());
  EXPECT_EQ(zeros_in(*model), 10);
}

// Whatever the order in which the two are given.
TEST_F(ModelPruningTest, AveragesArePrunedToo) {
  const std::vector<std::shared_ptr<Callback>> averagings{
      std::make_shared<EMAWeightAveraging>(EMAWeightAveragingOptions{.decay = 0.99}),
      std::make_shared<StochasticWeightAveraging>(
          StochasticWeightAveragingOptions{.swa_lrs = {0.1}, .swa_epoch_start = 1})};
  const std::function<bool(std::int64_t)> first_epoch = [](std::int64_t epoch) { return epoch == 0; };
  for (const auto& averaging : averagings) {
    for (const bool is_first : {false, true}) {
      TwoLayers model;
      auto chosen = options(4);
      chosen.callbacks = {averaging};
      const auto prune = pruning({.apply_pruning = first_epoch, .use_lottery_ticket_hypothesis = false});
      chosen.callbacks.insert(is_first ? chosen.callbacks.begin() : chosen.callbacks.end(), prune);
      Trainer(chosen).fit(model, samples(), samples());
      EXPECT_EQ(zeros_in(*model), 10);
      TwoLayers saved;
      load_module_state(*saved, Checkpoint(run_dir() / "checkpoints" / "last.ckpt").entry("model"));
      EXPECT_EQ(zeros_in(*saved), 10);
    }
  }
}

// Behind a validation the weights of training are pruned and reset, not their averages.
TEST_F(ModelPruningTest, AveragesAreNotWhatIsReset) {
  TwoLayers model;
  const auto before = model->first->weight.detach().clone();
  struct Reset final : Callback {
    void on_validation_end(TrainContext& context) override {
      weight = dynamic_cast<TwoLayersImpl&>(context.module()).first->weight.detach().clone();
    }
    at::Tensor weight;
  };
  const auto reset = std::make_shared<Reset>();
  auto chosen = options();
  chosen.callbacks = {pruning({.prune_on_train_epoch_end = false}), std::make_shared<EMAWeightAveraging>(),
                      reset};
  Trainer(chosen).fit(model, samples(), samples());
  EXPECT_TRUE(torch::equal(reset->weight, before * (reset->weight != 0)));
}

TEST_F(ModelPruningTest, ReportsWhatItDoes) {
  TwoLayers model;
  ::testing::internal::CaptureStderr();
  Trainer(with(pruning({.verbose = 2}), 2)).fit(model, samples());
  const auto text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("Applied l1_unstructured. Pruned: 0/19 (0.00%) -> 10/19 (52.63%)"));
  EXPECT_THAT(text, HasSubstr("Pruned: 10/19 (52.63%) -> 14/19 (73.68%)"));
  EXPECT_THAT(text, HasSubstr("Applied l1_unstructured to first.weight. Pruned: 0/12"));
}

TEST_F(ModelPruningTest, OptionsAreChecked) {
  test::expect_error<ConfigError>([] { pruning({.pruning_fn = "l1_unstructurd"}); },
                                  {"pruning_fn", "l1_unstructurd", "did you mean"});
  test::expect_error<ConfigError>([] { pruning({.pruning_fn = "random_structured"}); }, {"pruning_dim"});
  test::expect_error<ConfigError>([] { pruning({.pruning_fn = "ln_structured", .pruning_dim = 0}); },
                                  {"pruning_norm"});
  test::expect_error<ConfigError>(
      [] { pruning({.pruning_fn = "ln_structured", .pruning_dim = 0, .pruning_norm = 2}); },
      {"use_global_unstructured"});
  test::expect_error<ConfigError>([] { pruning({.amount = 1.5}); }, {"amount", "[0, 1]"});
  test::expect_error<ConfigError>([] { pruning({.amount = -1}); }, {"amount", ">= 0"});
  test::expect_error<ConfigError>([] { pruning({.verbose = 3}); }, {"verbose", "3"});
}

}  // namespace
}  // namespace lockstep
