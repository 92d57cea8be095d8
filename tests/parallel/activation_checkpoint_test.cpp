// Parts of models that run again in backward.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/autocast_mode.h>

#include <lockstep/base/error.h>
#include <lockstep/parallel/activations.h>
#include <lockstep/parallel/sharded/sharded_engine.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/torch.h>

#include "ddp_support.h"

namespace lockstep {
namespace {

namespace nn = torch::nn;

struct CountedBlock : nn::Module {
  explicit CountedBlock(double dropped) : dropout(dropped) {
    register_module("up", up);
    register_module("down", down);
    register_module("dropout", dropout);
  }
  at::Tensor forward(const at::Tensor& x) {
    ++runs;
    return x + down->forward(dropout->forward(at::gelu(up->forward(x))));
  }
  nn::Linear up{10, 40}, down{40, 10};
  nn::Dropout dropout;
  int runs = 0;
};

std::shared_ptr<CountedBlock> make_block(double dropped = 0) {
  const std::lock_guard lock(generator_mutex);
  torch::manual_seed(1);
  return std::make_shared<CountedBlock>(dropped);
}

at::Tensor checkpointed(CountedBlock& block, const at::Tensor& x) {
  return checkpoint([&block](const at::Tensor& input) { return block.forward(input); }, x);
}

void expect_same_gradients(const nn::Module& a, const nn::Module& b) {
  const auto expected = a.parameters(), got = b.parameters();
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(got[i].grad().equal(expected[i].grad())) << i;
}

TEST(ActivationCheckpoint, GivesTheSameGradientsFromASecondRun) {
  const auto plain = make_block(), block = make_block();
  auto x = at::ones({4, 10}).requires_grad_(), y = at::ones({4, 10}).requires_grad_();
  plain->forward(x).pow(2).sum().backward();
  const auto loss = checkpointed(*block, y).pow(2).sum();
  EXPECT_EQ(block->runs, 1);
  loss.backward();
  EXPECT_EQ(block->runs, 2);
  expect_same_gradients(*plain, *block);
  EXPECT_TRUE(x.grad().equal(y.grad()));
}

TEST(ActivationCheckpoint, KeepsNothingButTheArguments) {
  const auto block = make_block();
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> seen;
  const auto loss = checkpoint(
      [&](const at::Tensor& input) {
        const auto hidden = at::relu(block->up->forward(input));
        seen.push_back(hidden.storage().getWeakStorageImpl());
        return block->down->forward(hidden);
      },
      at::ones({4, 10}));
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_TRUE(seen.front().expired());
  loss.sum().backward();
  EXPECT_TRUE(block->up->weight.grad().defined());
}

TEST(ActivationCheckpoint, DropsWhatTheFirstRunDropped) {
  const auto plain = make_block(0.5), block = make_block(0.5);
  const auto x = at::ones({4, 10});
  const std::lock_guard lock(generator_mutex);
  torch::manual_seed(9);
  plain->forward(x).pow(2).sum().backward();
  const auto after_plain = at::rand({3});
  torch::manual_seed(9);
  const auto loss = checkpointed(*block, x).pow(2).sum();
  const auto after = at::rand({3});
  loss.backward();
  EXPECT_TRUE(after.equal(after_plain));
  expect_same_gradients(*plain, *block);
}

TEST(ActivationCheckpoint, NestsAndTakesGradientsTwice) {
  const auto plain = make_block(), block = make_block();
  const auto x = at::ones({4, 10});
  const auto twice = [&](CountedBlock& of, const at::Tensor& input) { return of.forward(of.forward(input)); };
  const auto expected = twice(*plain, x).pow(2).sum();
  expected.backward({}, /*retain_graph=*/true);
  expected.backward();
  const auto loss = checkpoint(
      [&](const at::Tensor& input) { return checkpointed(*block, checkpointed(*block, input)); }, x);
  const auto squared = loss.pow(2).sum();
  squared.backward({}, /*retain_graph=*/true);
  squared.backward();
  expect_same_gradients(*plain, *block);
}

TEST(ActivationCheckpoint, RunsInTheAutocastOfThen) {
  const auto plain = make_block(), block = make_block();
  const auto x = at::ones({4, 10});
  const auto run = [&](const auto& forward) {
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const auto loss = forward().to(at::kFloat).pow(2).sum();
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    loss.backward();
  };
  run([&] { return plain->forward(x); });
  run([&] { return checkpointed(*block, x); });
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  expect_same_gradients(*plain, *block);
}

TEST(ActivationCheckpoint, NoticesASecondRunThatDiffers) {
  int runs = 0;
  const auto weight = at::ones({3}).requires_grad_();
  const auto loss = checkpoint(
      [&](const at::Tensor& x) { return runs++ == 0 ? (x * weight).exp() : (x * weight).exp().exp(); },
      at::ones({3}));
  try {
    loss.sum().backward();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("computed something else in its second run"));
  }
}

TEST(ActivationCheckpoint, CastsArgumentsInTheSecondRun) {
  testing::run_ranks(2, [](const Communicator& comm) {
    const auto plain = make_block(), block = make_block();
    const Fsdp mixed{.mixed_precision = at::kBFloat16};
    ShardedEngine expected(*plain, comm, mixed), engine(*block, comm, mixed);
    const auto x = share(batch(0), comm);
    expected.backward(plain->forward(x).pow(2).mean());
    engine.backward(checkpointed(*block, x).pow(2).mean());
    const auto mine = engine.parameters(), theirs = expected.parameters();
    for (std::size_t i = 0; i < mine.size(); ++i)
      EXPECT_TRUE(mine[i].tensor.grad().equal(theirs[i].tensor.grad())) << mine[i].name;
  });
}

TEST(ActivationCheckpoint, GathersAShardedUnitNoMoreOften) {
  testing::run_ranks(2, [](const Communicator& comm) {
    const auto plain = make_block(), block = make_block();
    ShardedEngine expected(*plain, comm), engine(*block, comm);
    const auto x = share(batch(0), comm);
    expected.backward(plain->forward(x).pow(2).mean());
    engine.backward(checkpointed(*block, x).pow(2).mean());
    EXPECT_EQ(engine.stats().gathers, expected.stats().gathers);
    const auto mine = engine.parameters(), theirs = expected.parameters();
    for (std::size_t i = 0; i < mine.size(); ++i)
      EXPECT_TRUE(mine[i].tensor.grad().equal(theirs[i].tensor.grad())) << mine[i].name;
  });
}

}  // namespace
}  // namespace lockstep
