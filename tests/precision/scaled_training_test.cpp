// 16-mixed in a Trainer: what is scaled when, and what an overflow does; and agreement of ranks that hold
// parts of the gradients.
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>
#include <lockstep/testing/run_ranks.h>

#include <limits>

#include "strategy/scaled_step.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct ScaledNetImpl : Module<Example> {
  ScaledNetImpl() { register_module("net", net); }

  torch::Tensor training_step(const Example& batch, StepContext& step) override {
    if (step.batch_idx() == no_loss_at) return {};
    const auto outputs = net->forward(batch.data);
    EXPECT_EQ(outputs.scalar_type(), at::kHalf);
    auto loss = torch::nn::functional::mse_loss(outputs, batch.target) * loss_factor;
    EXPECT_EQ(loss.scalar_type(), at::kFloat);
    if (step.batch_idx() == overflows_at) loss = loss * kInf;
    losses.push_back(loss.item<float>());
    return loss;
  }
  void on_before_backward(StepContext&, const at::Tensor& loss) override {
    scaled_losses.push_back(loss.item<float>());
  }
  void on_before_optimizer_step(StepContext&) override {
    if (!net->weight.grad().defined()) return;
    EXPECT_EQ(net->weight.grad().scalar_type(), at::kFloat);
    gradients.push_back(net->weight.grad().clone());
  }
  void configure_gradient_clipping(StepContext& step, const GradientClip& clip) override {
    Module::configure_gradient_clipping(step, clip);
    clipped_norms.push_back(grad_norm(parameters()));
  }
  void on_train_batch_end(StepContext& step, const TrainOutput&) override {
    steps = step.global_step();
    weights.push_back(net->weight.detach().clone());
  }
  Optimizers configure_optimizers() override { return {.optimizer = SGD{.lr = 0.1}}; }

  torch::nn::Linear net{2, 1};
  double loss_factor = 1;
  std::int64_t overflows_at = -1, no_loss_at = -1;
  std::int64_t steps = 0;
  std::vector<float> losses, scaled_losses;
  std::vector<double> clipped_norms;
  std::vector<torch::Tensor> gradients, weights;
};
TORCH_MODULE(ScaledNet);

class ScaledTraining : public ::testing::Test {
 protected:
  // One epoch of `batches` batches of one sample.
  void fit(ScaledNet& model, TrainerOptions options, std::int64_t batches = 3) {
    torch::manual_seed(3);
    model->net->reset_parameters();
    options.max_epochs = 1;
    options.enable_progress_bar = false;
    options.run.run_dir = folder_ / "run";
    if (std::holds_alternative<Fp32>(options.precision)) options.precision = precision_;
    const auto rows = torch::arange(1.0F, 2.0F * static_cast<float>(batches) + 1).view({batches, 2}) / 4;
    Trainer(options).fit(model, loader(tensor_dataset(rows, rows.sum(1, true) + 1)));
  }
  double scale() { return precision_->grad_scaler()->get_scale(); }

  test::TemporaryFolder folder_;
  std::shared_ptr<Precision> precision_ = make_precision(Fp16Mixed{.scaler = {.init_scale = 1024}});
};

TEST_F(ScaledTraining, ScalesWhatBackwardStartsFromAndUnscalesBeforeTheHook) {
  ScaledNet model;
  fit(model, {});
  ASSERT_EQ(model->losses.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(model->scaled_losses[i], 1024 * model->losses[i]);
  ScaledNet plain;
  fit(plain, {.precision = Fp16Mixed{.scaler = {.enabled = false}}});
  EXPECT_EQ(plain->scaled_losses, plain->losses);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(torch::allclose(model->gradients[i], plain->gradients[i], 1e-2, 1e-3));
  }
  EXPECT_TRUE(torch::allclose(model->net->weight, plain->net->weight, 1e-2, 1e-3));
}

TEST_F(ScaledTraining, AnOverflowSkipsTheStepAndBacksOff) {
  ScaledNet model;
  model->overflows_at = 1;
  fit(model, {});
  EXPECT_FALSE(torch::equal(model->weights[0], model->weights[2]));
  EXPECT_TRUE(torch::equal(model->weights[0], model->weights[1]));
  EXPECT_EQ(scale(), 512);
  EXPECT_EQ(model->scaled_losses[2], 512 * model->losses[2]);
  EXPECT_EQ(model->steps, 3);  // as in Lightning, a step that is left out counts
}

TEST_F(ScaledTraining, TheScaleGrows) {
  precision_ = make_precision(Fp16Mixed{.scaler = {.init_scale = 4, .growth_interval = 2}});
  ScaledNet model;
  fit(model, {}, 5);
  EXPECT_EQ(scale(), 16);
  EXPECT_EQ(model->scaled_losses[2], 8 * model->losses[2]);
}

// What the scaler is for.
TEST_F(ScaledTraining, SmallGradientsSurvive) {
  ScaledNet scaled, plain;
  scaled->loss_factor = plain->loss_factor = 1e-8;
  precision_ = make_precision(Fp16Mixed{});
  fit(scaled, {});
  fit(plain, {.precision = Fp16Mixed{.scaler = {.enabled = false}}});
  EXPECT_EQ(plain->gradients[0].abs().max().item<float>(), 0);
  EXPECT_GT(scaled->gradients[0].abs().max().item<float>(), 1e-9F);
}

TEST_F(ScaledTraining, ClipsTheUnscaledGradients) {
  ScaledNet model;
  fit(model, {.gradient_clip_val = 0.25});
  for (const auto norm : model->clipped_norms) EXPECT_NEAR(norm, 0.25, 1e-3);
  for (const auto& gradient : model->gradients) EXPECT_GT(gradient.norm().item<float>(), 0.25F);
}

TEST_F(ScaledTraining, UnscalesOncePerWindow) {
  ScaledNet windows, whole;
  fit(windows, {.accumulate_grad_batches = 3});
  ASSERT_EQ(windows->gradients.size(), 1U);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_FLOAT_EQ(windows->scaled_losses[i], 1024 * windows->losses[i] / 3);
  fit(whole, {.precision = Fp16Mixed{.scaler = {.enabled = false}}, .accumulate_grad_batches = 3});
  EXPECT_TRUE(torch::allclose(windows->gradients[0], whole->gradients[0], 1e-2, 1e-3));
}

TEST_F(ScaledTraining, AnOverflowInAWindowSkipsTheWholeWindow) {
  ScaledNet model;
  model->overflows_at = 0;
  fit(model, {.accumulate_grad_batches = 2}, 4);
  EXPECT_TRUE(torch::equal(model->weights[0], model->weights[2]));
  EXPECT_FALSE(torch::equal(model->weights[0], model->weights[3]));
  EXPECT_EQ(scale(), 512);
}

TEST_F(ScaledTraining, CheckpointsHoldTheScalerUnderLightningsName) {
  ScaledNet model;
  model->overflows_at = 2;
  fit(model, {});
  const Checkpoint last(folder_ / "run" / "checkpoints" / "last.ckpt");
  EXPECT_EQ(last.shared().get<StateTree>("MixedPrecision"), precision_->state());
  EXPECT_EQ(last.shared().get<StateTree>("MixedPrecision").get<double>("scale"), 512);
}

// One that holds a part of the gradients on each rank.
class ShardedStrategy final : public Strategy {
 public:
  explicit ShardedStrategy(Communicator communicator) : communicator_(std::move(communicator)) {}
  std::string_view name() const override { return "sharded"; }
  void setup_environment(ClusterEnvironment&, const WorldShape&) override {}
  const Communicator& communicator() const override { return communicator_; }
  void setup_module(const std::shared_ptr<torch::nn::Module>&) override {}
  void setup_evaluation(torch::nn::Module&) override {}
  void backward(const at::Tensor& loss, std::span<torch::nn::Module* const>,
                const BackwardOptions&) override {
    loss.backward();
  }
  void optimizer_step(Optimizer& optimizer) override { optimizer.step(); }
  void skip_optimizer_step(Optimizer&) override { ++skipped; }
  bool shards_gradients() const override { return true; }
  void teardown() override {}

  int skipped = 0;

 private:
  Communicator communicator_;
};

TEST(ShardedGradients, AnOverflowOnOneRankSkipsTheStepOnAll) {
  testing::run_ranks(2, [](const Communicator& communicator) {
    ShardedStrategy strategy(communicator);
    const auto precision = make_precision(Fp16Mixed{});
    const auto parameter = torch::ones({2}).requires_grad_();
    const auto optimizer = OptimizerFactory(SGD{.lr = 0.5}).create({{"parameter", parameter}});
    for (const bool overflows : {true, false}) {
      optimizer->zero_grad();
      strategy.backward(detail::scaled_loss(*precision, parameter.sum()), {}, {});
      if (overflows && communicator.rank() == 1) parameter.grad()[0].fill_(kInf);
      detail::unscale_gradients(strategy, *precision, *optimizer);
      EXPECT_EQ(precision->grad_scaler()->has_overflowed(*optimizer), overflows);
      EXPECT_EQ(detail::step_optimizer(strategy, *precision, *optimizer), !overflows);
      EXPECT_EQ(parameter[1].item<float>(), overflows ? 1.0F : 0.5F);
    }
    EXPECT_EQ(strategy.skipped, 1);
    detail::adapt_scale(*precision);
    EXPECT_EQ(precision->grad_scaler()->get_scale(), 32768);
  });
}

// An address says nothing of an optimizer whose predecessor there has left unscaled gradients.
TEST(ScaledStep, BeginsWithoutAPast) {
  ShardedStrategy strategy{Communicator()};
  const auto precision = make_precision(Fp16Mixed{.scaler = {.init_scale = 4}});
  const auto parameter = torch::ones({2}).requires_grad_();
  const auto optimizer = OptimizerFactory(SGD{.lr = 0.5}).create({{"parameter", parameter}});
  for (const double gradient : {1, 2}) {
    detail::begin_with(*precision, *optimizer);
    optimizer->zero_grad();
    strategy.backward(detail::scaled_loss(*precision, gradient * parameter.sum()), {}, {});
    detail::unscale_gradients(strategy, *precision, *optimizer);
    EXPECT_EQ(parameter.grad()[0].item<float>(), gradient);
  }
}

// Lightning's: nothing is unscaled, stepped or learned where training_step gave no loss.
TEST_F(ScaledTraining, AStepWithoutALossLeavesTheScalerAlone) {
  precision_ = make_precision(Fp16Mixed{.scaler = {.init_scale = 4, .growth_interval = 3}});
  ScaledNet model;
  model->no_loss_at = 0;
  fit(model, {.gradient_clip_val = 1.0}, 4);
  EXPECT_EQ(model->steps, 4);
  EXPECT_EQ(scale(), 8);  // by the three others
  ScaledNet later;
  precision_ = make_precision(Fp16Mixed{.scaler = {.init_scale = 4, .growth_interval = 3}});
  later->no_loss_at = 2;
  fit(later, {}, 3);
  EXPECT_EQ(scale(), 4);
}

struct ManualNetImpl : ScaledNetImpl {
  bool automatic_optimization() const override { return false; }
  torch::Tensor training_step(const Example& batch, StepContext& step) override {
    auto optimizer = step.manual_optimizer();
    optimizer.zero_grad();
    step.manual_backward(ScaledNetImpl::training_step(batch, step));
    optimizer.step();
    return {};
  }
  void on_train_batch_end(StepContext& step, const TrainOutput&) override { step.save_checkpoint(saved); }
  std::filesystem::path saved;
};

TEST_F(ScaledTraining, CheckpointsOfManualOptimisationHoldTheNextScale) {
  const auto model = std::make_shared<ManualNetImpl>();
  model->overflows_at = 0;
  model->saved = folder_ / "saved.ckpt";
  TrainerOptions options{.max_epochs = 1, .precision = precision_, .enable_progress_bar = false};
  options.run.run_dir = folder_ / "run";
  const auto row = torch::ones({1, 2});
  Trainer(options).fit(model, loader(tensor_dataset(row, row.sum(1, true) + 1)));
  EXPECT_EQ(Checkpoint(model->saved).shared().get<StateTree>("MixedPrecision").get<double>("scale"), 512);
}

}  // namespace
}  // namespace lockstep
