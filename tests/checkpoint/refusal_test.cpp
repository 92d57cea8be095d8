// What could not be read again is refused before anything is written, and what is written can be read.
#include <ctime>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/checkpoint/checkpoint.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/torch.h>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

using test::expect_error;
using ::testing::IsEmpty;
using testing::run_ranks;

StateTree with(const std::string& name, StateValue value) {
  StateTree tree;
  tree.set(name, std::move(value));
  return tree;
}

// `value` within so many trees, those of the checkpoint included.
StateTree within(int trees, const StateValue& value) {
  StateTree tree = with("value", value);
  for (int i = 1; i < trees; ++i) tree = with("t", tree);
  return with("entry", tree);
}

class Refused : public ::testing::Test {
 protected:
  void expect_refused(const StateTree& shared, const std::vector<std::string>& parts,
                      const CheckpointInfo& info = {}) {
    const auto target = folder_ / "new" / "x.ckpt";
    expect_error<IoError>([&] { save_checkpoint(target, {shared}, info); }, parts);
    EXPECT_EQ(folder_.entries(), 0) << "something was written";
  }
  StateTree there_and_back(const StateTree& shared) {
    save_checkpoint(folder_ / "x.ckpt", {shared}, {});
    return Checkpoint(folder_ / "x.ckpt").shared();
  }

  test::TemporaryFolder folder_;
};

TEST_F(Refused, WhatIsTooDeep) {
  for (const StateValue& value : {StateValue(torch::ones({2})), StateValue(0.5), StateValue(StateBytes())}) {
    const bool is_number = std::holds_alternative<double>(value);
    const auto deepest = within(is_number ? 31 : 30, value);
    EXPECT_THAT(differences(deepest, there_and_back(deepest)), IsEmpty());
    std::filesystem::remove_all(folder_ / "x.ckpt");
    expect_refused(within(is_number ? 32 : 31, value), {"too deep", "entry/t/t"});
  }
}

TEST_F(Refused, NamesThatWouldMeet) {
  expect_refused(with("rank_0", with("w", torch::ones({1}))), {"one file", "rank_0.safetensors"});
  expect_refused(with("ranks", with("w", torch::ones({1}))), {"not ranks"});
  StateTree paths;
  paths.set("a/b", torch::ones({1}));
  paths.set("a", with("b", torch::ones({1})));
  expect_refused(with("m", paths), {"m/a/b", "two tensors"});
  run_ranks(2, [&](Communicator comm) {
    const TensorShard half{torch::ones({1}), {2}, comm.rank()};
    StateTree state = with("model", with("w", half));
    state.set("model-00001-of-00002", with("w", torch::ones({1})));
    expect_error<IoError>([&] { save_checkpoint(folder_ / "x", {state}, {}, comm); },
                          {"one file", "model-00001-of-00002.safetensors"});
  });
}

TEST_F(Refused, NamesThatAreNoUtf8) {
  expect_refused(with("entry", with("caf\xe9", true)), {"entry/caf", "UTF-8"});
  expect_refused({}, {"UTF-8"}, {.strategy = "caf\xe9"});
  expect_refused({}, {"from 0 on"}, {.epoch = -1});
}

TEST_F(Refused, TensorsWithoutBytesOrOfAnotherKind) {
  expect_refused(with("m", with("lost", at::Tensor())), {"m/lost", "undefined"});
  expect_refused(with("m", with("meta", torch::empty({2}, torch::kMeta))), {"m/meta", "that has its bytes"});
  expect_refused(with("m", with("sparse", torch::ones({2, 2}).to_sparse())), {"m/sparse", "dense"});
  const auto quantised = at::quantize_per_tensor(torch::ones({2}), 0.1, 0, at::kQInt8);
  expect_refused(with("m", with("z", quantised)), {"m/z", "QuantizedCPUQInt8"});
  expect_refused(with("m", with("conf", StateTree::unread("my.Class(...)"))), {"m/conf", "my.Class(...)"});
}

TEST_F(Refused, ATensorOfWhichNobodyHasAPart) {
  const TensorShard nothing{torch::empty({0}), {5}, 0};
  expect_error<IoError>([&] { save_checkpoint(folder_ / "x", {with("lost", nothing)}, {}); }, {"lost"});
  EXPECT_EQ(folder_.entries(), 0);
}

TEST(Stored, EmptyShardsAreKept) {
  const test::TemporaryFolder folder;
  run_ranks(2, [&](Communicator comm) {
    save_checkpoint(folder / "x", {with("s", TensorShard{torch::empty({0}), {0, 3}, 0})}, {}, comm);
  });
  EXPECT_EQ(Checkpoint(folder / "x").shared().get<at::Tensor>("s").sizes(), at::IntArrayRef({0, 3}));
}

TEST(Stored, AShardThatIsAllOfATensorKeepsItsShape) {
  const test::TemporaryFolder folder;
  const auto rows = torch::arange(6.0F);
  run_ranks(2, [&](Communicator comm) {
    const auto mine = comm.rank() == 0 ? rows : torch::empty({0});
    const TensorShard shard{mine, {2, 3}, comm.rank() == 0 ? 0 : 6};
    save_checkpoint(folder / "x", {with("model", with("w", shard))}, {}, comm);
  });
  const safetensors::File file(folder / "x" / "model-00001-of-00002.safetensors");
  EXPECT_EQ(file.at("w").shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_TRUE(std::filesystem::exists(folder / "x" / "model.safetensors.index.json"));
}

TEST(Stored, SignsThatAreYetToChangeDo) {
  const test::TemporaryFolder folder;
  save_checkpoint(folder / "x", {with("t", torch::ones({3})._neg_view())}, {});
  EXPECT_EQ(Checkpoint(folder / "x").shared().get<at::Tensor>("t").sum().item<float>(), -3);
}

TEST(Stored, ShardsAreFoundInListsAndUnderAnyName) {
  const test::TemporaryFolder folder;
  const auto all = torch::arange(6.0F);
  const TensorShard part{torch::empty({2}), {6}, 2};
  StateTree state = with("list", StateList(std::vector<at::Tensor>{all, all})), wanted;
  state.set("tree", with("a/b", all));
  wanted.set("list", StateList(std::vector<StateValue>{all, part}));
  wanted.set("tree", with("a/b", part));
  save_checkpoint(folder / "x", {state}, {});
  const auto read = Checkpoint(folder / "x").shared(wanted);
  EXPECT_EQ(read.get<StateList>("list").get<at::Tensor>(0).numel(), 6);
  for (const auto& shard :
       {read.get<StateList>("list").get<TensorShard>(1), read.get<StateTree>("tree").get<TensorShard>("a/b")})
    EXPECT_TRUE(torch::equal(shard.elements, all.slice(0, 2, 4)));
}

// Of the processor, which does not depend on what else the machine does. Time by the square of the number of
// names takes three times as much.
// Seconds of the processor that it takes to save and to read a model of so many tensors.
double seconds_of(int tensors) {
  const test::TemporaryFolder folder;
  const auto one = torch::zeros({1});
  StateTree model;
  const auto begin = std::clock();
  for (int i = 0; i < tensors; ++i) model.set("layers." + std::to_string(i) + ".weight", one);
  save_checkpoint(folder / "x", {with("model", model)}, {});
  EXPECT_EQ(Checkpoint(folder / "x").entry("model").size(), static_cast<std::size_t>(tensors));
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

// Four times as many take about four times as long, not sixteen times.
TEST(Stored, ManyTensorsTakeTimeByTheirNumber) { EXPECT_LT(seconds_of(40'000), 9 * seconds_of(10'000)); }

}  // namespace
}  // namespace lockstep
