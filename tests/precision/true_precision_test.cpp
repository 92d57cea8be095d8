// 64-true, bf16-true and 16-true: models, batches and new tensors in one element type.
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>

#include <latch>
#include <thread>

#include "support/temporary_folder.h"

namespace lockstep {
namespace {

struct Row {
  PrecisionOptions options;
  at::ScalarType dtype;
};

const std::vector<Row> kTrue{{Fp64{}, at::kDouble}, {Fp16True{}, at::kHalf}, {Bf16True{}, at::kBFloat16}};

at::ScalarType new_tensors() { return torch::zeros({1}).scalar_type(); }

TEST(DefaultDtypeScopeTest, NestsAndEndsWithAnException) {
  try {
    const DefaultDtypeScope outer(at::kHalf);
    {
      const DefaultDtypeScope inner(at::kDouble);
      EXPECT_EQ(new_tensors(), at::kDouble);
    }
    EXPECT_EQ(new_tensors(), at::kHalf);
    throw std::runtime_error("scripted");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(new_tensors(), at::kFloat);
}

// Scopes of two ranks in one process end in any order.
TEST(DefaultDtypeScopeTest, TheLastThreadRestoresWhatWasBefore) {
  std::latch opened(2), first_gone(1);
  std::thread first([&] {
    {
      const DefaultDtypeScope scope(at::kHalf);
      opened.arrive_and_wait();
    }
    first_gone.count_down();
  });
  std::thread second([&] {
    const DefaultDtypeScope scope(at::kHalf);
    opened.arrive_and_wait();
    first_gone.wait();
    EXPECT_EQ(new_tensors(), at::kHalf);
  });
  first.join();
  second.join();
  EXPECT_EQ(new_tensors(), at::kFloat);
}

TEST(TruePrecisionTest, ConvertsWhatIsFloatingAndNothingElse) {
  for (const auto& [options, dtype] : kTrue) {
    const auto precision = make_precision(options);
    SCOPED_TRACE(precision->name());
    torch::nn::Sequential model{torch::nn::Linear(2, 2), torch::nn::BatchNorm1d(2)};
    auto weight = model->parameters()[0];  // as an optimizer holds it
    weight.mutable_grad() = torch::ones_like(weight);
    precision->convert_module(*model);
    for (const auto& parameter : model->parameters()) EXPECT_EQ(parameter.scalar_type(), dtype);
    for (const auto& buffer : model->named_buffers()) {
      const bool counts = buffer.key() == "1.num_batches_tracked";
      EXPECT_EQ(buffer.value().scalar_type(), counts ? at::kLong : dtype) << buffer.key();
    }
    EXPECT_EQ(weight.scalar_type(), dtype);
    EXPECT_EQ(weight.grad().scalar_type(), dtype);
    EXPECT_EQ(precision->convert_input(torch::ones({1})).scalar_type(), dtype);
    EXPECT_EQ(precision->convert_input(torch::ones({1}, at::kLong)).scalar_type(), at::kLong);
    EXPECT_EQ(precision->init_dtype(), dtype);
    EXPECT_EQ(precision->grad_scaler(), nullptr);
  }
}

struct TypedNetImpl : Module<Example> {
  TypedNetImpl() { register_module("net", net); }
  void see(const Example& batch) {
    EXPECT_EQ(batch.data.scalar_type(), dtype);
    EXPECT_EQ(batch.target.scalar_type(), at::kLong);
    EXPECT_EQ(new_tensors(), dtype);
    ++seen;
  }
  torch::Tensor training_step(const Example& batch, StepContext&) override {
    see(batch);
    const auto logits = net->forward(batch.data);
    EXPECT_EQ(logits.scalar_type(), dtype);
    if (fails) throw std::runtime_error("scripted");
    return torch::nn::functional::cross_entropy(logits, batch.target);
  }
  void validation_step(const Example& batch, StepContext&) override { see(batch); }
  void on_before_optimizer_step(StepContext&) override {
    EXPECT_EQ(new_tensors(), at::kFloat);
    EXPECT_EQ(net->weight.grad().scalar_type(), dtype);
  }
  Optimizers configure_optimizers() override { return {.optimizer = AdamW{.lr = 0.1}}; }

  torch::nn::Linear net{2, 3};
  at::ScalarType dtype = at::kFloat;
  bool fails = false;
  int seen = 0;
};
TORCH_MODULE(TypedNet);

class TrueTraining : public ::testing::Test {
 protected:
  void fit(TypedNet& model, const Row& row) {
    model->dtype = row.dtype;
    TrainerOptions options{
        .max_epochs = 2, .precision = row.options, .num_sanity_val_steps = 0, .enable_progress_bar = false};
    options.run.run_dir = folder_ / "run";
    const auto batches = loader(tensor_dataset(torch::ones({1, 2}), torch::ones({1}, at::kLong)));
    Trainer(options).fit(model, batches, batches);
  }
  test::TemporaryFolder folder_;
};

TEST_F(TrueTraining, ComputesInOneElementType) {
  for (const auto& row : kTrue) {
    SCOPED_TRACE(row.dtype);
    TypedNet model;
    const auto before = model->net->weight.detach().clone();
    fit(model, row);
    EXPECT_EQ(model->seen, 4);
    EXPECT_EQ(model->net->weight.scalar_type(), row.dtype);
    EXPECT_FALSE(torch::allclose(model->net->weight.to(at::kFloat), before, 0.05));
    EXPECT_EQ(new_tensors(), at::kFloat);
  }
}

TEST_F(TrueTraining, AFailedStepRestoresTheDefault) {
  TypedNet model;
  model->fails = true;
  EXPECT_THROW(fit(model, kTrue[2]), std::runtime_error);
  EXPECT_EQ(new_tensors(), at::kFloat);
}

}  // namespace
}  // namespace lockstep
