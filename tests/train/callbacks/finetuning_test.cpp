// What trains when, under which learning rates, and what a resumed run has of it.
#include <gmock/gmock.h>

#include "support/expect_error.h"
#include "train/slope.h"

namespace lockstep {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using testing::SlopeTest;

struct TransferImpl : Module<Example> {
  TransferImpl() {
    torch::manual_seed(3);
    backbone = register_module("backbone",
                               torch::nn::Sequential(torch::nn::Linear(2, 3), torch::nn::BatchNorm1d(3)));
    head = register_module("head", torch::nn::Linear(3, 1));
  }
  torch::Tensor training_step(const Example& batch, StepContext& step) override {
    groups.push_back(step.optimizer().groups().size());
    if (groups.back() > 1) backbone_lrs.push_back(step.optimizer().groups().back().lr);
    return head->forward(torch::tanh(backbone->forward(batch.data))).pow(2).mean();
  }
  Optimizers configure_optimizers() override {
    return {.optimizer = SGD{.lr = 1.0, .momentum = 0.9},
            .lr_scheduler = LRScheduler{.scheduler = ExponentialLR{.gamma = 0.5}}};
  }
  torch::Tensor first_weight() const { return backbone->ptr<torch::nn::LinearImpl>(0)->weight; }
  torch::nn::BatchNorm1dImpl& norm() const {
    return dynamic_cast<torch::nn::BatchNorm1dImpl&>(*backbone->ptr(1));
  }

  torch::nn::Sequential backbone{nullptr};
  torch::nn::Linear head{nullptr};
  std::vector<std::size_t> groups;
  std::vector<double> backbone_lrs;
};
TORCH_MODULE(Transfer);

class FinetuningTest : public SlopeTest {
 protected:
  TrainerOptions with(const std::shared_ptr<Callback>& callback, std::int64_t max_epochs) {
    auto chosen = options(max_epochs);
    chosen.callbacks = {callback};
    return chosen;
  }
  static std::shared_ptr<BackboneFinetuning> from_epoch(std::int64_t epoch) {
    return std::make_shared<BackboneFinetuning>(
        BackboneFinetuningOptions{.unfreeze_backbone_at_epoch = epoch});
  }
  static Loader<Example> samples() {
    return loader(tensor_dataset(torch::sin(torch::arange(12.0F)).view({6, 2})), {.batch_size = 3});
  }
  static bool is_equal(const torch::nn::Module& a, const torch::nn::Module& b) {
    return module_state(a) == module_state(b);
  }
};

TEST_F(FinetuningTest, TheBackboneTrainsFromItsEpochOn) {
  for (const std::int64_t epochs : {2, 3}) {
    Transfer model;
    const auto before = model->first_weight().detach().clone();
    Trainer(with(from_epoch(2), epochs)).fit(model, samples());
    EXPECT_EQ(torch::equal(model->first_weight(), before), epochs == 2);
    EXPECT_EQ(model->first_weight().requires_grad(), epochs == 3);
  }
}

// The first group's rates are 1, 0.5, 0.25, 0.125.
TEST_F(FinetuningTest, TheBackbonesRateGrowsToTheOthers) {
  Transfer model;
  Trainer(with(from_epoch(1), 4)).fit(model, samples());
  EXPECT_THAT(model->groups, ElementsAre(1, 1, 2, 2, 2, 2, 2, 2));
  EXPECT_THAT(model->backbone_lrs, ElementsAre(DoubleEq(0.05), DoubleEq(0.05), DoubleEq(0.1), DoubleEq(0.1),
                                               DoubleEq(0.125), DoubleEq(0.125)));
}

TEST_F(FinetuningTest, TheBackboneIsWhatTheProgramSays) {
  Transfer model;
  BackboneFinetuningOptions wanted{.unfreeze_backbone_at_epoch = 9};
  wanted.backbone = [](AnyModule& module) -> torch::nn::Module& {
    return *dynamic_cast<TransferImpl&>(module).head;
  };
  Trainer(with(std::make_shared<BackboneFinetuning>(wanted), 1)).fit(model, samples());
  EXPECT_FALSE(model->head->weight.requires_grad());
  EXPECT_TRUE(model->first_weight().requires_grad());
  test::expect_error<ConfigError>([&] { Trainer(with(from_epoch(1), 1)).fit(model_, batches(1)); },
                                  {"backbone", "registered"});
}

TEST_F(FinetuningTest, GoesOnWithTheGroupsOfTheMoment) {
  for (const bool averaged : {false, true}) {
    const auto run = [&](Transfer& model, std::int64_t epochs, const std::string& from = {}) {
      auto chosen = with(from_epoch(1), epochs);
      if (averaged) chosen.strategy = Ddp{};
      Trainer(chosen).fit(model, samples(), std::nullopt, from);
    };
    Transfer whole;
    run(whole, 4);
    for (const std::int64_t epochs : {1, 2, 3}) {
      Transfer first, second;
      run(first, epochs);
      const auto from = folder_ / "from.ckpt";
      std::filesystem::rename(run_dir() / "checkpoints" / "last.ckpt", from);
      run(second, 4, from);
      EXPECT_TRUE(is_equal(*second, *whole)) << epochs;
      EXPECT_EQ(second->groups.size(), 2 * (4 - static_cast<std::size_t>(epochs)));
      std::filesystem::remove_all(from);
    }
  }
}

// Its schedule begins with fewer groups than the optimizer has later, or with as many.
TEST_F(FinetuningTest, GoesOnBesideStochasticWeightAveraging) {
  for (const bool averages_first : {false, true}) {
    const auto run = [&](Transfer& model, std::int64_t epochs, const std::string& from = {}) {
      auto chosen = options(epochs);
      const auto averaging = std::make_shared<StochasticWeightAveraging>(
          StochasticWeightAveragingOptions{.swa_lrs = {0.5}, .swa_epoch_start = averages_first ? 2 : 3});
      const auto unfreezing = from_epoch(averages_first ? 2 : 1);
      chosen.callbacks = {averaging, unfreezing};
      if (averages_first) std::swap(chosen.callbacks[0], chosen.callbacks[1]);
      Trainer(chosen).fit(model, samples(), std::nullopt, from);
    };
    Transfer first, second, whole;
    run(whole, 5);
    run(first, 3);
    const auto from = folder_ / "from.ckpt";
    std::filesystem::rename(run_dir() / "checkpoints" / "last.ckpt", from);
    run(second, 5, from);
    EXPECT_TRUE(is_equal(*second, *whole)) << averages_first;
    std::filesystem::remove_all(from);
  }
}

// Two optimizers that the module steps itself; nothing is unfrozen later.
struct TwoOptimizersImpl final : TransferImpl {
  bool automatic_optimization() const override { return false; }
  torch::Tensor training_step(const Example& batch, StepContext& step) override {
    auto optimizer = step.manual_optimizer(1);
    optimizer.zero_grad();
    step.manual_backward(head->forward(torch::tanh(backbone->forward(batch.data))).pow(2).mean());
    optimizer.step();
    return {};
  }
  Optimizers configure_optimizers() override {
    return several_optimizers({{.optimizer = SGD{.lr = 1.0}, .module = backbone.ptr()},
                               {.optimizer = SGD{.lr = 1.0}, .module = head.ptr()}});
  }
};

struct FreezeAtFirst final : BaseFinetuning {
  void freeze_before_training(AnyModule& module) override {
    freeze(*dynamic_cast<TransferImpl&>(module).backbone->ptr(1));
  }
  void finetune_function(TrainContext&) override {}
};

TEST_F(FinetuningTest, GoesOnWithSeveralOptimizers) {
  const auto model = std::make_shared<TwoOptimizersImpl>();
  Trainer(with(std::make_shared<FreezeAtFirst>(), 1)).fit(model, samples());
  Trainer trainer(with(std::make_shared<FreezeAtFirst>(), 2));
  trainer.fit(model, samples(), std::nullopt, "last");
  EXPECT_EQ(trainer.current_epoch(), 2);
}

// Freezes everything in the backbone, and lets it train from epoch 1 on, without BatchNorm if so told.
struct FreezeAll final : BaseFinetuning {
  explicit FreezeAll(bool train_bn_) : train_bn(train_bn_) {}
  static torch::nn::Module& backbone(AnyModule& module) {
    return *dynamic_cast<TransferImpl&>(module).backbone;
  }
  void freeze_before_training(AnyModule& module) override { freeze(backbone(module), /*train_bn=*/false); }
  void finetune_function(TrainContext& context) override {
    means.push_back(dynamic_cast<TransferImpl&>(context.module()).norm().running_mean.clone());
    if (context.current_epoch() == 1)
      added = unfreeze_and_add_param_group(context, backbone(context.module()), {.train_bn = train_bn});
    if (context.current_epoch() == 2)
      added_again = unfreeze_and_add_param_group(context, backbone(context.module()), {.train_bn = train_bn});
  }
  bool train_bn, added = false, added_again = true;
  std::vector<at::Tensor> means;
};

TEST_F(FinetuningTest, FrozenBatchNormKeepsItsStatistics) {
  Transfer model;
  const auto callback = std::make_shared<FreezeAll>(true);
  Trainer(with(callback, 3)).fit(model, samples());
  EXPECT_TRUE(torch::equal(callback->means[1], callback->means[0]));
  EXPECT_FALSE(torch::equal(callback->means[2], callback->means[1]));
  EXPECT_EQ(model->norm().options.momentum(), 0.1);
  EXPECT_TRUE(callback->added);
  EXPECT_FALSE(callback->added_again);
  EXPECT_DOUBLE_EQ(model->backbone_lrs.front(), 0.05);  // a tenth of the first group's
}

TEST_F(FinetuningTest, BatchNormStaysFrozenWhereItIsNotToTrain) {
  Transfer model;
  Trainer(with(std::make_shared<FreezeAll>(false), 3)).fit(model, samples());
  EXPECT_TRUE(model->first_weight().requires_grad());
  EXPECT_FALSE(model->norm().weight.requires_grad());
  EXPECT_TRUE(torch::equal(model->norm().weight, torch::ones({3})));
}

TEST_F(FinetuningTest, FrozenStatisticsAreThawedAfterFit) {
  Transfer model;
  Trainer(with(std::make_shared<FreezeAll>(true), 1)).fit(model, samples());
  EXPECT_EQ(model->norm().options.momentum(), 0.1);
}

TEST_F(FinetuningTest, RatesAreSaidWhenAskedFor) {
  Transfer model;
  BackboneFinetuningOptions wanted{.unfreeze_backbone_at_epoch = 0, .verbose = true, .rounding = 3};
  ::testing::internal::CaptureStderr();
  Trainer(with(std::make_shared<BackboneFinetuning>(wanted), 1)).fit(model, samples());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("Current lr: 1.000, Backbone lr: 0.100"));
}

TEST_F(FinetuningTest, OptionsAreChecked) {
  const auto make = [](const BackboneFinetuningOptions& wanted) { return BackboneFinetuning(wanted); };
  test::expect_error<ConfigError>([&] { make({.unfreeze_backbone_at_epoch = -1}); },
                                  {"unfreeze_backbone_at_epoch"});
  test::expect_error<ConfigError>([&] { make({.lambda_func = {}}); }, {"lambda_func"});
  test::expect_error<ConfigError>([&] { make({.backbone_initial_lr = -1}); }, {"backbone_initial_lr", "-1"});
}

}  // namespace
}  // namespace lockstep
