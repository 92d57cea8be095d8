// Activations on disk between forward and backward, in models that know nothing of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include <lockstep/base/error.h>
#include <lockstep/parallel/activations.h>
#include <lockstep/parallel/sharded/sharded_engine.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/torch.h>

#include "parallel/activations/offloaded_activations.h"
#include "stack_model.h"
#include "support/expect_error.h"
#include "support/file_size_limit.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
namespace nn = torch::nn;
using ::testing::HasSubstr;

// All that is not a single number.
ActivationOffload all_in(const fs::path& directory) { return {.directory = directory, .min_bytes = 16}; }

// What a block computes inside, after forward: whether it is in memory.
bool has_hidden(Stack& model) { return !model.block(1).seen.back().expired(); }

TEST(ActivationOffload, RefusesWhatLibTorchSavesBeforeItIsComputed) {
  const test::TemporaryFolder folder;
  const nn::Sequential model(nn::Linear(2, 2), nn::RReLU());
  test::expect_error<ConfigError>([&] { offload_activations(*model, all_in(folder.path())); },
                                  {"of 1", "RReLU"});
}

void expect_same_on_disk(const Middle& middle, bool is_checkpointed = false) {
  const test::TemporaryFolder folder;
  const auto plain = make_stack(middle), model = make_stack(middle);
  offload_activations(*model, all_in(folder.path()));
  if (is_checkpointed) apply_activation_checkpointing(*model, types<StackBlock>());
  const std::lock_guard lock(generator_mutex);
  for (int step = 0; step < 2; ++step) {
    const auto expected = seeded_loss(*plain, batch(step));
    EXPECT_TRUE(has_hidden(*plain));
    expected.backward();
    const auto loss = seeded_loss(*model, batch(step));
    EXPECT_FALSE(has_hidden(*model));
    loss.backward();
    expect_equal_gradients(*plain, *model);
    step_and_clear(*plain);
    step_and_clear(*model);
  }
}

at::Tensor views_and_writes(const at::Tensor& x) {
  auto halves = x.view({-1, 2, 20}).transpose(1, 2).chunk(2, 1);
  auto product = halves[0] * halves[1];
  product.add_(1).mul_(halves[0]);
  return at::cat({product, at::gelu(halves[1])}, 1).transpose(1, 2).reshape({-1, 40});
}

TEST(ActivationOffloading, GivesTheSameBits) {
  expect_same_on_disk([](const at::Tensor& x) { return at::gelu(x); });
}

TEST(ActivationOffloading, GivesTheSameBitsOfViewsAndWrites) { expect_same_on_disk(views_and_writes); }

TEST(ActivationOffloading, GivesTheSameBitsBesideCheckpointing) {
  for (const auto& middle :
       {Middle([](const at::Tensor& x) { return at::gelu(x); }), Middle(views_and_writes)})
    expect_same_on_disk(middle, /*is_checkpointed=*/true);
}

// The input of a block, all that checkpointing keeps.
TEST(ActivationOffloading, TakesWhatCheckpointingKeeps) {
  const test::TemporaryFolder folder;
  for (const bool is_offloaded : {false, true}) {
    const auto model = make_stack();
    apply_activation_checkpointing(*model, types<StackBlock>());
    if (is_offloaded) offload_activations(*model, all_in(folder.path()));
    auto hidden = model->stem->forward(batch(0));
    hidden = model->block(0).forward(hidden);
    const auto input = hidden.storage().getWeakStorageImpl();
    hidden = model->block(1).forward(hidden);
    const auto loss = model->head->forward(hidden).sum();
    hidden.reset();
    EXPECT_EQ(input.expired(), is_offloaded);
    loss.backward();
  }
}

TEST(ActivationOffloading, ServesSeveralBackwardsAndSecondDerivatives) {
  const test::TemporaryFolder folder;
  const auto plain = make_stack(), model = make_stack();
  offload_activations(*model, all_in(folder.path()));
  for (auto* each : {plain.get(), model.get()}) {
    each->eval();
    auto x = batch(0).clone().set_requires_grad(true);
    const auto loss = each->forward(x).pow(3).mean();
    loss.backward({}, /*retain_graph=*/true);
    const auto gradient = torch::autograd::grad({loss}, {x}, {}, true, /*create_graph=*/true)[0];
    gradient.pow(2).sum().backward();
  }
  expect_equal_gradients(*plain, *model);
}

TEST(ActivationOffloading, CopiesMemoryOnce) {
  const test::TemporaryFolder folder;
  detail::ActivationStore store(offload::SwapFolder({.directory = folder.path()}), 1024);
  auto whole = at::arange(2048, at::kFloat);
  const auto all = store.keep(whole), half = store.keep(whole.narrow(0, 1024, 1024).view({32, 32}).t());
  EXPECT_EQ(store.bytes_in_use(), 8192U);
  whole.add_(1);
  const auto changed = store.keep(whole);
  EXPECT_EQ(store.bytes_in_use(), 16384U) << "of another content";
  EXPECT_TRUE(all.get().equal(at::arange(2048, at::kFloat)));
  EXPECT_TRUE(half.get().equal(at::arange(1024, 2048, at::kFloat).view({32, 32}).t()));
  EXPECT_EQ(half.get().strides(), at::IntArrayRef({1, 32}));
  EXPECT_TRUE(changed.get().equal(whole));
}

TEST(ActivationOffloading, LeavesSmallTensorsAndSmallPartsWhereTheyAre) {
  const test::TemporaryFolder folder;
  detail::ActivationStore store(offload::SwapFolder({.directory = folder.path()}), 1024);
  const auto small = at::ones({255}), large = at::ones({100, 1024});
  EXPECT_FALSE(store.keep(small).is_copy());
  EXPECT_FALSE(store.keep(large[0]).is_copy()) << "would cost the whole";
  EXPECT_TRUE(store.keep(large).is_copy());
  EXPECT_TRUE(store.keep(at::ones({256})).is_copy());
}

TEST(ActivationOffloading, GivesFilesBackAndUsesThemAgain) {
  const test::TemporaryFolder folder;
  detail::ActivationStore store(offload::SwapFolder({.directory = folder.path()}), 1024);
  const void* first = nullptr;
  for (int step = 0; step < 3; ++step) {
    const auto kept = store.keep(at::ones({1024}));
    const auto* const address = kept.get().const_data_ptr();
    if (step == 0) first = address;
    EXPECT_EQ(address, first);
  }
  EXPECT_EQ(store.bytes_in_use(), 0U);
}

TEST(ActivationOffloading, LeavesEvaluationAlone) {
  const test::TemporaryFolder folder;
  const auto model = make_stack();
  offload_activations(*model, all_in(folder.path()));
  const test::FileSizeLimit no_files(0);
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(model->forward(batch(0)).defined());
}

TEST(ActivationOffloading, TellsWhenTheDiskIsFullAndGoesOnAfterwards) {
  const test::TemporaryFolder folder;
  const auto plain = make_stack(), model = make_stack();
  offload_activations(*model, all_in(folder.path()));
  const std::lock_guard lock(generator_mutex);
  {
    const test::FileSizeLimit no_files(0);
    EXPECT_THROW(seeded_loss(*model, batch(0)), IoError);
  }
  seeded_loss(*model, batch(0)).backward();
  seeded_loss(*plain, batch(0)).backward();
  expect_equal_gradients(*plain, *model);
}

TEST(ActivationOffloading, EndsWithBackward) {
  const test::TemporaryFolder folder;
  const auto model = make_stack(), other = make_stack();
  offload_activations(*model, all_in(folder.path()));
  seeded_loss(*model, batch(0)).backward();
  const auto loss = seeded_loss(*other, batch(0));
  EXPECT_TRUE(has_hidden(*other));
}

TEST(ActivationOffloading, RefusesWhatCannotWork) {
  const auto refusal = [](const auto& act) {
    try {
      act();
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("nothing thrown");
  };
  const auto model = make_stack();
  EXPECT_THAT(refusal([&] { offload_activations(*model, {.directory = "/no/such/place"}); }),
              HasSubstr("directory '/no/such/place'"));
  EXPECT_THAT(refusal([&] { offload_activations(*model, {.min_bytes = 0}); }), HasSubstr("min_bytes"));
  const auto empty = std::make_shared<nn::ReLUImpl>();
  EXPECT_THAT(refusal([&] { offload_activations(*empty); }), HasSubstr("parameters"));
  Stack on_stack([](const at::Tensor& x) { return x; });
  EXPECT_THAT(refusal([&] { offload_activations(on_stack); }), HasSubstr("std::shared_ptr"));
}

TEST(ActivationOffloading, GivesTheSameBitsInShards) {
  testing::run_ranks(2, [](const Communicator& comm) {
    const test::TemporaryFolder folder;
    for (const auto& options :
         {ShardingPlan{.shards = 2}, ShardingPlan{.shards = 2, .activation_checkpointing = "StackBlock"}}) {
      const auto plain = make_stack(views_and_writes), model = make_stack(views_and_writes);
      plain->eval();
      model->eval();
      auto on_disk = options;
      on_disk.activation_offload = all_in(folder.path());
      ShardedEngine expected(*plain, options, comm), engine(*model, on_disk, comm);
      for (int step = 0; step < 2; ++step) {
        expected.backward(plain->forward(batch(2 * step + comm.rank())).pow(2).mean());
        const auto loss = model->forward(batch(2 * step + comm.rank())).pow(2).mean();
        EXPECT_FALSE(has_hidden(*model));
        engine.backward(loss);
      }
      EXPECT_EQ(engine.stats().gathers, expected.stats().gathers);
      const auto mine = engine.parameters(), theirs = expected.parameters();
      for (std::size_t i = 0; i < mine.size(); ++i)
        EXPECT_TRUE(mine[i].tensor.grad().equal(theirs[i].tensor.grad())) << mine[i].name;
    }
  });
}

}  // namespace
}  // namespace lockstep
