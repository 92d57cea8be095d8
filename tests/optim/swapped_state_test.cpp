// Optimizers whose state lies on disk: the bits of those whose state is in memory.
#include <gtest/gtest.h>

#include <filesystem>

#include <lockstep/base/error.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/torch.h>

#include "offload/swap_folder.h"
#include "optim/state_memory.h"
#include "support/expect_error.h"
#include "support/file_size_limit.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

const std::vector<std::vector<std::int64_t>> kShapes = {{1},  {4097},   {0},    {300},   {77777},
                                                        {12}, {70, 80}, {1024}, {9, 300}};

std::vector<NamedParameter> parameters_of_odd_sizes() {
  torch::manual_seed(1);
  std::vector<NamedParameter> parameters;
  for (const auto& shape : kShapes)
    parameters.push_back({"p" + std::to_string(parameters.size()), torch::randn(shape).requires_grad_()});
  return parameters;
}

void set_gradients(const Optimizer& optimizer, int step) {
  torch::manual_seed(100 + step);
  for (const auto& [name, parameter] : optimizer.parameters()) {
    const auto gradient = torch::randn(parameter.sizes());
    const bool is_used = step != 2 || name != "p3";
    parameter.mutable_grad() = is_used ? gradient : at::Tensor();
  }
}

struct SwapTest : ::testing::Test {
  StateSwap swap(std::int64_t tile_elements = 5000) const {
    return {.folder = std::make_shared<const offload::SwapFolder>(
                offload::SwapFolderOptions{.directory = folder_.path()}),
            .options = {.block_size = 4096},
            .tile_elements = tile_elements};
  }
  test::TemporaryFolder folder_;
};

struct SwappedState : SwapTest, ::testing::WithParamInterface<OptimizerFactory> {};
using SwappedStateRefusals = SwapTest;

void expect_equal(Optimizer& a, Optimizer& b) {
  for (std::size_t i = 0; i < a.parameters().size(); ++i)
    EXPECT_TRUE(a.parameters()[i].tensor.equal(b.parameters()[i].tensor)) << i;
  const auto left = a.state(), right = b.state();
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i)
    EXPECT_TRUE(left[i].tensor.equal(right[i].tensor)) << left[i].parameter << " " << left[i].kind;
}

TEST_P(SwappedState, StepsWithTheBitsOfStateInMemory) {
  const auto in_memory = GetParam().create(parameters_of_odd_sizes());
  const auto on_disk = GetParam().create(parameters_of_odd_sizes());
  on_disk->swap_state(swap());
  for (int step = 0; step < 5; ++step) {
    for (auto* optimizer : {in_memory.get(), on_disk.get()}) {
      set_gradients(*optimizer, step);
      optimizer->step(0.5);
    }
    if (step % 2 == 0) expect_equal(*in_memory, *on_disk);
  }
  expect_equal(*in_memory, *on_disk);
}

TEST_P(SwappedState, GoesOnFromAStateThatIsLoaded) {
  const auto in_memory = GetParam().create(parameters_of_odd_sizes());
  set_gradients(*in_memory, 0);
  in_memory->step();
  const auto on_disk = GetParam().create(parameters_of_odd_sizes());
  on_disk->swap_state(swap());
  for (std::size_t i = 0; i < kShapes.size(); ++i) {
    const torch::NoGradGuard no_grad;
    auto target = on_disk->parameters()[i].tensor;
    target.copy_(in_memory->parameters()[i].tensor);
  }
  load_state(*on_disk, state_of(*in_memory));
  for (auto* optimizer : {in_memory.get(), on_disk.get()}) {
    set_gradients(*optimizer, 1);
    optimizer->step();
  }
  expect_equal(*in_memory, *on_disk);
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, SwappedState,
    ::testing::Values(OptimizerFactory(AdamW{.lr = 0.1, .weight_decay = 0.1}),
                      OptimizerFactory(SGD{.lr = 0.1, .momentum = 0.9}), OptimizerFactory(Lion{.lr = 0.1}),
                      OptimizerFactory(Adagrad{.lr = 0.1, .initial_accumulator_value = 0.5}),
                      OptimizerFactory(Lamb{.lr = 0.1}), OptimizerFactory(Muon{.lr = 0.1})));

TEST_F(SwappedStateRefusals, NamesTheBytesThatAreNeededAndFree) {
  auto where = swap();
  where.ranks = 4;
  where.other_bytes = std::uint64_t{1} << 50;
  const auto optimizer = OptimizerFactory(AdamW{}).create(parameters_of_odd_sizes());
  test::expect_error<IoError>([&] { optimizer->swap_state(where); },
                              {folder_.path().string(), "4 rank(s)", "4.0 PiB", "free"});
}

// What could not be had once may be there the next time.
TEST_F(SwappedStateRefusals, LeaveAnOptimizerThatMayTryAgain) {
  const auto in_memory = OptimizerFactory(AdamW{}).create(parameters_of_odd_sizes());
  const auto on_disk = OptimizerFactory(AdamW{}).create(parameters_of_odd_sizes());
  on_disk->swap_state(swap());
  for (auto* optimizer : {in_memory.get(), on_disk.get()}) set_gradients(*optimizer, 0);
  {
    const test::FileSizeLimit limit(64 << 10);
    test::expect_error<IoError>([&] { on_disk->step(); }, {"limit of 65536", "ulimit -f"});
    test::expect_error<IoError>([&] { (void)on_disk->state(); }, {"limit of 65536"});
  }
  for (auto* optimizer : {in_memory.get(), on_disk.get()}) optimizer->step();
  expect_equal(*in_memory, *on_disk);
}

TEST_F(SwappedStateRefusals, NamesAStepThatHasFailedHalfWay) {
  const auto in_memory = OptimizerFactory(AdamW{}).create(parameters_of_odd_sizes());
  const auto optimizer = OptimizerFactory(AdamW{}).create(parameters_of_odd_sizes());
  const auto where = swap();
  optimizer->swap_state(where);
  for (auto* one : {in_memory.get(), optimizer.get()}) {
    set_gradients(*one, 0);
    one->step();
  }
  const auto file = std::filesystem::directory_iterator(where.folder->path())->path();
  const auto bytes = std::filesystem::file_size(file);
  std::filesystem::resize_file(file, 65536);
  set_gradients(*optimizer, 1);
  test::expect_error<IoError>([&] { optimizer->step(); }, {"cannot read", file.string()});
  test::expect_error<IoError>([&] { optimizer->step(); }, {"AdamW", "half way", "checkpoint"});
  test::expect_error<IoError>([&] { (void)optimizer->state(); }, {"half way"});
  std::filesystem::resize_file(file, bytes);
  for (std::size_t i = 0; i < kShapes.size(); ++i) {
    const torch::NoGradGuard no_grad;
    at::Tensor(optimizer->parameters()[i].tensor).copy_(in_memory->parameters()[i].tensor);
  }
  load_state(*optimizer, state_of(*in_memory));
  set_gradients(*in_memory, 1);
  for (auto* one : {in_memory.get(), optimizer.get()}) one->step();
  expect_equal(*in_memory, *optimizer);
}

TEST_F(SwappedStateRefusals, LeavesTensorsThatSomebodyKeeps) {
  auto optimizer = OptimizerFactory(AdamW{}).create(parameters_of_odd_sizes());
  optimizer->swap_state(swap());
  set_gradients(*optimizer, 0);
  optimizer->step();
  const auto kept = optimizer->state();
  std::vector<at::Tensor> copies;
  for (const auto& entry : kept) copies.push_back(entry.tensor.clone());
  optimizer.reset();
  for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(kept[i].tensor.equal(copies[i])) << i;
}

struct PartlySwappedState : SwapTest {};

TEST_F(PartlySwappedState, StepsWithTheBitsOfStateInMemory) {
  for (const double share : {0.0, 0.1, 0.95}) {
    const auto in_memory = OptimizerFactory(AdamW{}).create(parameters_of_odd_sizes());
    const auto partly = OptimizerFactory(AdamW{}).create(parameters_of_odd_sizes());
    auto where = swap();
    where.share = share;
    partly->swap_state(where);
    for (int step = 0; step < 4; ++step) {
      for (auto* const optimizer : {in_memory.get(), partly.get()}) {
        set_gradients(*optimizer, step);
        optimizer->step();
      }
    }
    expect_equal(*in_memory, *partly);
    const auto files = std::distance(std::filesystem::directory_iterator(where.folder->path()), {});
    EXPECT_EQ(files, share == 0.0 ? 0 : 1);
  }
}

TEST_F(PartlySwappedState, LeavesMuonsMomentumInMemory) {
  const auto bytes_on_disk = [&](bool momentum_in_memory) {
    const OptimizerFactory factory(Muon{.lr = 0.1, .momentum_in_memory = momentum_in_memory});
    const auto in_memory = factory.create(parameters_of_odd_sizes());
    const auto partly = factory.create(parameters_of_odd_sizes());
    const auto where = swap();
    partly->swap_state(where);
    for (auto* const optimizer : {in_memory.get(), partly.get()}) {
      set_gradients(*optimizer, 0);
      optimizer->step();
    }
    expect_equal(*in_memory, *partly);
    std::uintmax_t bytes = 0;
    for (const auto& file : std::filesystem::directory_iterator(where.folder->path()))
      bytes += file.file_size();
    return bytes;
  };
  const auto all = bytes_on_disk(false), others = bytes_on_disk(true);
  EXPECT_GE(all, others + 4 * (70 * 80 + 9 * 300));
  EXPECT_GT(others, 2 * 4 * 77777);
}

TEST_F(SwappedStateRefusals, RefusesStateThatIsThereAlready) {
  const auto optimizer = OptimizerFactory(AdamW{}).create(parameters_of_odd_sizes());
  set_gradients(*optimizer, 0);
  optimizer->step();
  EXPECT_THROW(optimizer->swap_state(swap()), ConfigError);
}

TEST_F(SwappedStateRefusals, IsRefusedByOptimizersThatNeedAllOfIt) {
  const auto optimizer = OptimizerFactory(LBFGS{}).create(parameters_of_odd_sizes());
  test::expect_error<ConfigError>([&] { optimizer->swap_state(swap()); }, {"LBFGS", "on disk"});
}

}  // namespace
}  // namespace lockstep
