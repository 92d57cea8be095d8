// Precisions: what autocast does to a step, and that it leaves nothing behind.
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

bool autocast_is_on() { return at::autocast::is_autocast_enabled(at::kCPU); }

TEST(PrecisionOptions, AreGivenByName) {
  EXPECT_EQ(make_precision("16-mixed")->name(), "16-mixed");
  std::string name = "bf16-true";
  EXPECT_EQ(make_precision(name)->name(), "bf16-true");
  const TrainerOptions options{.strategy = "ddp", .precision = "64-true", .accelerator = "cpu"};
  EXPECT_TRUE(std::holds_alternative<Fp64>(options.precision));
}

TEST(PrecisionOptions, AWrongNameIsRefusedWhenATrainerOrAFabricIsMade) {
  const TrainerOptions options{.precision = "16-mxied", .accelerator = "cpu"};
  test::expect_error<ConfigError>([&] { Trainer{options}; },
                                  {"trainer.precision", "\"16-mxied\"", "16-mixed", "did you mean"});
  test::expect_error<ConfigError>([] { Trainer({.strategy = "dpp"}); },
                                  {"trainer.strategy", "\"dpp\"", "ddp"});
  test::expect_error<ConfigError>([] { Trainer({.strategy = "xla_fsdp"}); },
                                  {"trainer.strategy xla_fsdp", "fsdp"});
  test::expect_error<ConfigError>([] { Fabric({.strategy = "dpp"}); }, {"fabric.strategy", "\"dpp\"", "ddp"});
}

TEST(PrecisionChoices, KnowEveryNameOfLightning) {
  std::map<std::string, const Choice<PrecisionOptions>*> rows;
  for (const auto& row : precision_choices()) {
    EXPECT_TRUE(rows.emplace(std::string(row.name), &row).second) << row.name;
  }
  const std::map<std::string, std::string> names{{"32-true", "32-true"},       {"32", "32-true"},
                                                 {"64-true", "64-true"},       {"64", "64-true"},
                                                 {"16-mixed", "16-mixed"},     {"16", "16-mixed"},
                                                 {"bf16-mixed", "bf16-mixed"}, {"bf16", "bf16-mixed"},
                                                 {"16-true", "16-true"},       {"bf16-true", "bf16-true"}};
  for (const auto& [name, canonical] : names) {
    ASSERT_TRUE(rows.contains(name)) << name;
    EXPECT_EQ(rows[name]->unavailable, "") << name;
    EXPECT_EQ(make_precision(rows[name]->value)->name(), canonical);
  }
  for (const char* name : {"transformer-engine", "transformer-engine-float16"}) {
    ASSERT_TRUE(rows.contains(name)) << name;
    EXPECT_NE(rows[name]->unavailable.find("docs/status.md"), std::string_view::npos) << name;
  }
}

TEST(PrecisionChoices, RefuseAScalerOutOfRange) {
  test::expect_error<ConfigError>([] { make_precision(Fp16Mixed{.scaler = {.growth_factor = 0.5}}); },
                                  {"growth_factor", "> 1", "0.5"});
}

TEST(PrecisionChoices, RefuseANullPointer) {
  test::expect_error<ConfigError>([] { make_precision(std::shared_ptr<Precision>()); },
                                  {"precision", "null"});
}

TEST(PrecisionChoices, SayThatBf16And16AreOldNames) {
  ::testing::internal::CaptureStderr();
  make_precision(Bf16Mixed{.given_as = "bf16"});
  make_precision(Fp16Mixed{.given_as = "16"});
  const auto text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("bf16-mixed"), std::string::npos);
  EXPECT_NE(text.find("\"16-mixed\""), std::string::npos);
}

TEST(ForwardScopeTest, RestoresWhatWasBefore) {
  const auto dtype = at::autocast::get_autocast_dtype(at::kCPU);
  const auto x = torch::ones({2, 2});
  {
    const ForwardScope outer(at::kHalf);
    {
      const auto inner = make_precision(Bf16Mixed{})->forward_scope();
      EXPECT_EQ(torch::matmul(x, x).scalar_type(), at::kBFloat16);
    }
    EXPECT_EQ(torch::matmul(x, x).scalar_type(), at::kHalf);
    const auto none = make_precision(Fp32{})->forward_scope();
    EXPECT_TRUE(autocast_is_on());
  }
  EXPECT_FALSE(autocast_is_on());
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), dtype);
  EXPECT_EQ(torch::matmul(x, x).scalar_type(), at::kFloat);
}

// autocast keeps the casts of leaves, which a Linear of LibTorch does not hand it: it transposes first.
class ForwardScopeCache : public ::testing::Test {
 protected:
  torch::Tensor forward() {
    const auto scope = precision_->forward_scope();
    return torch::mm(torch::ones({1, 1}), weight_);
  }

  std::shared_ptr<Precision> precision_ = make_precision(Bf16Mixed{});
  torch::Tensor weight_ = torch::ones({1, 1}).requires_grad_();
  ForwardScope of_the_user_{at::kBFloat16};  // around a whole run: inner scopes are not the outermost
};

// Casts made without gradients, in a validation, carry none; a training step must not get them.
TEST_F(ForwardScopeCache, ForgetsTheCastsOfAnEvaluation) {
  {
    const torch::NoGradGuard no_grad;
    forward();
  }
  forward().sum().backward();
  EXPECT_EQ(weight_.grad().item<float>(), 1);
}

TEST_F(ForwardScopeCache, SeesTheStepThatWasTaken) {
  EXPECT_EQ(forward().item<float>(), 1);
  {
    const torch::NoGradGuard no_grad;
    weight_.add_(1);
  }
  EXPECT_EQ(forward().item<float>(), 2);
}

struct NetImpl : Module<Example> {
  NetImpl() { register_module("net", net); }
  torch::Tensor training_step(const Example& batch, StepContext&) override {
    const auto logits = net->forward(batch.data);
    types.push_back(logits.scalar_type());
    if (fails) throw std::runtime_error("scripted");
    return logits.to(at::kFloat).pow(2).mean();
  }
  void validation_step(const Example& batch, StepContext&) override {
    types.push_back(net->forward(batch.data).scalar_type());
  }
  void on_before_backward(StepContext&, const at::Tensor&) override { EXPECT_FALSE(autocast_is_on()); }
  void on_validation_batch_end(StepContext&) override { EXPECT_FALSE(autocast_is_on()); }
  void on_before_optimizer_step(StepContext&) override {
    for (const auto& parameter : parameters()) {
      EXPECT_EQ(parameter.scalar_type(), at::kFloat);
      EXPECT_EQ(parameter.grad().scalar_type(), at::kFloat);
    }
  }
  Optimizers configure_optimizers() override { return {.optimizer = SGD{.lr = 0.1}}; }

  torch::nn::Linear net{2, 3};
  std::vector<at::ScalarType> types;
  bool fails = false;
};
TORCH_MODULE(Net);

class TrainerPrecision : public ::testing::Test {
 protected:
  void fit(Net& model, PrecisionOptions precision) {
    TrainerOptions options{.max_epochs = 1,
                           .precision = std::move(precision),
                           .num_sanity_val_steps = 0,
                           .enable_progress_bar = false};
    options.run.run_dir = folder_ / "run";
    const auto batches = loader(tensor_dataset(torch::ones({1, 2})));
    Trainer(options).fit(model, batches, batches);
  }
  std::string summary() { return test::content(folder_ / "run" / "summary.json"); }

  test::TemporaryFolder folder_;
};

TEST_F(TrainerPrecision, Bf16MixedComputesStepsInBfloat16AndKeepsFloat32) {
  Net model;
  fit(model, Bf16Mixed{});
  EXPECT_EQ(model->types, std::vector(2, at::kBFloat16));
  EXPECT_NE(summary().find("\"precision\": \"bf16-mixed\""), std::string::npos);
}

TEST_F(TrainerPrecision, Fp32IsTheDefault) {
  Net model;
  fit(model, TrainerOptions{}.precision);
  EXPECT_EQ(model->types, std::vector(2, at::kFloat));
  EXPECT_NE(summary().find("\"precision\": \"32-true\""), std::string::npos);
}

TEST_F(TrainerPrecision, AFailedStepLeavesNoAutocastBehind) {
  Net model;
  model->fails = true;
  EXPECT_THROW(fit(model, Bf16Mixed{}), std::runtime_error);
  EXPECT_EQ(model->types, std::vector(1, at::kBFloat16));
  EXPECT_FALSE(autocast_is_on());
}

struct Doubled : Precision {
  std::string_view name() const override { return "doubled"; }
  void convert_module(torch::nn::Module& module) const override { module.to(at::kDouble); }
};

TEST_F(TrainerPrecision, TakesAPrecisionOfTheUsersOwn) {
  struct SlopeImpl : Module<Example> {
    torch::Tensor training_step(const Example& batch, StepContext&) override {
      return (weight * batch.data).mean();
    }
    Optimizers configure_optimizers() override { return {.optimizer = SGD{.lr = 0.1}}; }
    torch::Tensor weight = register_parameter("weight", torch::ones({2}));
  };
  const auto model = std::make_shared<SlopeImpl>();
  TrainerOptions options{
      .max_epochs = 1, .precision = std::make_shared<Doubled>(), .enable_progress_bar = false};
  options.run.run_dir = folder_ / "run";
  Trainer(options).fit(model, loader(tensor_dataset(torch::ones({1, 2}))));
  EXPECT_EQ(model->weight.scalar_type(), at::kDouble);
}

}  // namespace
}  // namespace lockstep
