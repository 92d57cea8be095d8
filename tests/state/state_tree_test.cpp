#include <lockstep/state/state_tree.h>

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/torch.h>

#include "support/expect_error.h"

namespace lockstep {
namespace {

using test::expect_error;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// One value of every kind.
StateTree example() {
  StateTree inner;
  inner.set("weight", torch::arange(6, torch::kFloat).view({2, 3}));
  inner.set("bytes", StateBytes{std::byte{1}, std::byte{2}});
  StateList list;
  list.push_back(1);
  list.push_back("two");
  list.push_back(inner);
  StateTree tree;
  tree.set("step", 7);
  tree.set("lr", 0.25);
  tree.set("done", true);
  tree.set("name", "AdamW");
  tree.set("list", list);
  tree.set("inner", inner);
  return tree;
}

TEST(StateTreeTest, NamesWhatWasNotReadToWhoeverAsks) {
  StateTree inner;
  inner.set("conf", StateTree::unread("my.Class(...)"));
  StateTree tree;
  tree.set("hparams", inner);
  tree.set("list", StateList(std::vector{StateTree::unread("a sparse tensor")}));
  for (const auto& each : {tree, tree.clone()}) {
    const auto& held = each.get<StateTree>("hparams");
    EXPECT_TRUE(held.contains("conf"));
    expect_error<CheckpointError>([&] { held.get<StateTree>("conf"); }, {"hparams/conf", "my.Class(...), which is not read"});
    expect_error<CheckpointError>([&] { held.get<double>("conf"); }, {"hparams/conf", "number", "my.Class(...)"});
    expect_error<CheckpointError>([&] { each.get_all<StateTree>("list"); }, {"list/0", "a sparse tensor"});
    EXPECT_EQ(each.flatten().size(), 2u);
  }
  StateTree other;
  other.set("conf", StateTree());
  EXPECT_THAT(differences(inner, other), ElementsAre("conf: expected my.Class(...), which is not read, got tree of 0"));
}

TEST(StateTreeTest, GivesWhatItWasGiven) {
  const auto tree = example();
  EXPECT_EQ(tree.get<std::int64_t>("step"), 7);
  EXPECT_EQ(tree.get<double>("lr"), 0.25);
  EXPECT_TRUE(tree.get<bool>("done"));
  EXPECT_EQ(tree.get<std::string>("name"), "AdamW");
  EXPECT_EQ(tree.get<StateList>("list").get<std::string>(1), "two");
  EXPECT_EQ(tree.get<StateTree>("inner").get<StateBytes>("bytes").size(), 2);
  EXPECT_EQ(tree.get<StateTree>("inner").get<at::Tensor>("weight").sizes(),
            (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(tree.find("nothing"), nullptr);
}

TEST(StateTreeTest, KeepsOrderAndReplacesInPlace) {
  StateTree tree;
  tree.set("b", 1);
  tree.set("a", 2);
  tree.set("b", "three");
  ASSERT_EQ(tree.size(), 2);
  EXPECT_EQ(tree.entries()[0].name, "b");
  EXPECT_EQ(tree.get<std::string>("b"), "three");
}

TEST(StateTreeTest, FindsEachOfManyNames) {
  std::vector<StateTree::Entry> entries;
  for (int i = 0; i < 1000; ++i) entries.push_back({std::to_string(i * 7919 % 1000), i});
  const StateTree tree(entries);
  StateTree copy = tree;
  copy.set("500", "replaced");
  for (const auto& [name, value] : tree.entries())
    EXPECT_EQ(tree.get<std::int64_t>(name), std::get<std::int64_t>(value));
  EXPECT_EQ(copy.get<std::string>("500"), "replaced");
  EXPECT_EQ(copy.size(), 1000);
  entries.push_back({"3", 3});
  expect_error<CheckpointError>([&] { StateTree{entries}; }, {"twice", "3"});
}

TEST(StateTreeTest, NamesThePathTheKindAndWhatIsThere) {
  const auto tree = example();
  expect_error<CheckpointError>([&] { tree.get<double>("step"); },
                                {"state step", "expected number", "integer 7"});
  expect_error<CheckpointError>([&] { tree.get<bool>("doen"); }, {"state doen", "expected bool", "none"});
  const auto& inner = tree.get<StateTree>("inner");
  expect_error<CheckpointError>([&] { inner.get<std::string>("weight"); },
                                {"state inner/weight", "expected string", "tensor Float [2, 3]"});
  const auto& list = tree.get<StateList>("list");
  expect_error<CheckpointError>([&] { list.get<bool>(3); }, {"state list/3", "none"});
  expect_error<CheckpointError>([&] { list.get<StateTree>(2).get<bool>("bytes"); },
                                {"state list/2/bytes", "2 bytes"});
  expect_error<CheckpointError>([&] { tree.get_all<std::int64_t>("list"); },
                                {"state list/1", "string \"two\""});
}

TEST(StateTreeTest, KnowsItsPathHoweverDeepItIsPut) {
  StateTree outer;
  outer.set("optimizer", example());
  EXPECT_EQ(outer.get<StateTree>("optimizer").get<StateTree>("inner").path(), "optimizer/inner");
  expect_error<CheckpointError>(
      [&] { outer.get<StateTree>("optimizer").get<StateList>("list").get<StateTree>(2).get<bool>("x"); },
      {"optimizer/list/2/x"});
}

TEST(StateTreeTest, AliasesTensorsUntilItIsCloned) {
  const auto tensor = torch::zeros({2});
  StateTree tree;
  StateTree inner;
  inner.set("tensor", tensor);
  tree.set("inner", inner);
  tree.set("list", StateList(std::vector{tensor}));
  const auto snapshot = tree.clone();
  tensor.fill_(1);
  EXPECT_TRUE(tree.get<StateTree>("inner").get<at::Tensor>("tensor").is_same(tensor));
  EXPECT_EQ(snapshot.get<StateTree>("inner").get<at::Tensor>("tensor").sum().item<float>(), 0);
  EXPECT_EQ(snapshot.get<StateList>("list").get<at::Tensor>(0).sum().item<float>(), 0);
  EXPECT_EQ(snapshot.get<StateTree>("inner").path(), "inner");
}

TEST(StateTreeTest, CopiesIntoTheMemoryOfATensor) {
  StateTree tree;
  tree.set("x", torch::ones({2}));
  auto target = torch::zeros({2}).requires_grad_();
  const auto* memory = target.const_data_ptr();
  tree.copy_to("x", target);
  EXPECT_EQ(target.const_data_ptr(), memory);
  EXPECT_EQ(target.sum().item<float>(), 2);
  expect_error<CheckpointError>([&] { tree.copy_to("x", torch::zeros({3})); },
                                {"state x", "tensor Float [3]", "tensor Float [2]"});
  expect_error<CheckpointError>([&] { tree.copy_to("x", torch::zeros({2}, at::kDouble)); },
                                {"tensor Double [2]", "tensor Float [2]"});
}

TEST(StateTreeTest, FlattensToUniquePaths) {
  StateTree tree = example();
  tree.set("a/b~", 1);
  tree.set("empty", StateTree());
  std::vector<std::string> paths;
  for (const auto& [path, value] : tree.flatten()) paths.push_back(path);
  EXPECT_THAT(paths, ElementsAre("step", "lr", "done", "name", "list/0", "list/1", "list/2/weight",
                                 "list/2/bytes", "inner/weight", "inner/bytes", "a~1b~0"));
  EXPECT_EQ(tree.flatten()[0].second->describe(), "integer 7");
}

TEST(StateTreeTest, IsEqualBitForBit) {
  EXPECT_EQ(example(), example());
  EXPECT_EQ(example(), example().clone());
  StateTree nan, minus_zero, zero;
  nan.set("x", torch::full({1}, std::nan("")));
  minus_zero.set("x", torch::full({1}, -0.0F));
  zero.set("x", torch::full({1}, 0.0F));
  EXPECT_EQ(nan, nan.clone());
  EXPECT_FALSE(minus_zero == zero);
  EXPECT_THAT(differences(zero, minus_zero), ElementsAre(::testing::HasSubstr("not bit by bit")));
}

TEST(StateTreeTest, OrderOfNamesDoesNotCount) {
  StateTree a, b;
  a.set("x", 1), a.set("y", 2);
  b.set("y", 2), b.set("x", 1);
  EXPECT_EQ(a, b);
}

TEST(StateTreeTest, SaysWhatDiffersAndWhere) {
  auto got = example();
  StateTree inner;
  inner.set("weight", torch::zeros({2, 3}));
  inner.set("bytes", StateBytes{});
  got.set("inner", inner);
  got.set("step", 7.0);
  got.set("lr", 0.5);
  got.set("list", StateList(std::vector{1}));
  got.set("more", 1);
  EXPECT_THAT(
      differences(example(), got),
      ElementsAre("step: expected integer 7, got number 7", "lr: expected number 0.25, got number 0.5",
                  "list/1: expected string \"two\", got nothing", "list/2: expected tree of 2, got nothing",
                  "inner/weight: tensor Float [2, 3] differs in 5 of 6 elements",
                  "inner/bytes: expected 2 bytes, got 0 bytes", "more: expected nothing, got integer 1"));
  EXPECT_THAT(differences(got, got), IsEmpty());
}

}  // namespace
}  // namespace lockstep
