// What a ShardedEngine does with buffers, and with batch normalisation.
#include <gtest/gtest.h>

#include <lockstep/base/error.h>
#include <lockstep/parallel/sharded/sharded_engine.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/torch.h>

#include "../ddp_support.h"

namespace lockstep {
namespace {

namespace nn = torch::nn;
using lockstep::testing::run_ranks;

// A layer with a factor that a second module has, too.
struct Scaled : nn::Module {
  Scaled() {
    register_module("layer", layer);
    register_module("other", other);
    factor = register_buffer("factor", at::full({}, 1.5));
    count = register_buffer("count", at::zeros({}, at::kLong));
    other->register_buffer("factor", factor);
  }
  at::Tensor forward(const at::Tensor& x) { return layer->forward(x) * factor; }

  nn::Linear layer{10, 4};
  std::shared_ptr<nn::Module> other = std::make_shared<nn::Module>("Other");
  at::Tensor factor, count;
};

std::shared_ptr<Scaled> make_scaled() {
  const std::lock_guard lock(generator_mutex);
  torch::manual_seed(1);
  return std::make_shared<Scaled>();
}

TEST(ShardedBuffers, LieInTheTypeOfMixedPrecisionUntilTheEnd) {
  run_ranks(2, [](const Communicator& comm) {
    const auto model = make_scaled();
    ShardedEngine engine(*model, comm, {.mixed_precision = MixedPrecision{.buffer_dtype = at::kBFloat16}});
    EXPECT_EQ(model->factor.scalar_type(), at::kBFloat16);
    EXPECT_EQ(model->other->buffers()[0].scalar_type(), at::kBFloat16);
    EXPECT_EQ(model->count.scalar_type(), at::kLong);
    EXPECT_EQ(engine.in_own_type(model->factor).scalar_type(), at::kFloat);
    EXPECT_EQ(engine.in_own_type(model->factor).item<float>(), 1.5F);
    EXPECT_EQ(engine.in_own_type(model->count).scalar_type(), at::kLong);
    engine.restore();
    EXPECT_EQ(model->factor.scalar_type(), at::kFloat);
    EXPECT_EQ(model->factor.item<float>(), 1.5F);
  });
}

TEST(ShardedBuffers, StayAsTheyAreWhereThePolicyIsRefused) {
  run_ranks(2, [](const Communicator& comm) {
    const auto model = make_scaled();
    EXPECT_THROW(ShardedEngine(*model, comm,
                               {.auto_wrap_policy = types<nn::Conv2d>(), .mixed_precision = at::kBFloat16}),
                 ConfigError);
    EXPECT_EQ(model->factor.scalar_type(), at::kFloat);
  });
}

TEST(ShardedBuffers, FollowRank0AfterAStep) {
  for (const bool follows : {true, false}) {
    run_ranks(2, [follows](const Communicator& comm) {
      const auto model = make_scaled();
      ShardedEngine engine(*model, comm, {.broadcast_buffers = follows});
      model->count.fill_(5 + comm.rank());
      engine.backward(model->forward(share(batch(0), comm)).pow(2).mean());
      EXPECT_EQ(model->count.item<int>(), 5 + comm.rank());
      engine.after_step();
      EXPECT_EQ(model->count.item<int>(), follows ? 5 : 5 + comm.rank());
    });
  }
}

TEST(ShardedBuffers, BatchNormalisationKeepsItsTypeUnderMixedPrecision) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_model();
    const ShardedEngine engine(*model, comm, {.mixed_precision = at::kBFloat16});
    const auto y = model->forward(share(batch(0), comm));
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    for (const auto& item : model->named_parameters())
      EXPECT_EQ(item.value().scalar_type(), item.key().starts_with("2.") ? at::kFloat : at::kBFloat16)
          << item.key();
    const auto mean = model->named_buffers()["2.running_mean"];
    EXPECT_EQ(mean.scalar_type(), at::kFloat);
    EXPECT_GT(mean.abs().max().item<float>(), 0);
  });
}

}  // namespace
}  // namespace lockstep
