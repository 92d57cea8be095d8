// What is saved is given back: as a whole, by rank, and spread over ranks in another way.
#include <lockstep/checkpoint/checkpoint.h>

#include <cmath>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/checkpoint/weights.h>
#include <lockstep/formats/checkpoint_tools.h>
#include <lockstep/testing/run_ranks.h>
#include <nlohmann/json.hpp>

#include "checkpoint/everything.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::IsEmpty;
using testing::run_ranks;

TEST(Checkpoint, GivesBackWhatItWasGiven) {
  const test::TemporaryFolder folder;
  StateTree own;
  own.set("seed", torch::arange(4));
  save_checkpoint(folder / "all.ckpt", {test::everything(), own},
                  {.epoch = 2, .global_step = 7, .strategy = "ddp"});
  const Checkpoint checkpoint(folder / "all.ckpt");
  EXPECT_THAT(differences(test::everything(), checkpoint.shared()), IsEmpty());
  EXPECT_THAT(differences(own, checkpoint.own(0)), IsEmpty());
  EXPECT_EQ(checkpoint.info().epoch, 2);
  EXPECT_EQ(checkpoint.info().global_step, 7);
  EXPECT_EQ(checkpoint.info().strategy, "ddp");
  EXPECT_EQ(folder.entries(), 1);
  EXPECT_THROW((void)checkpoint.own(1), CheckpointError);
}

TEST(Checkpoint, KeepsTheOrderAndNaN) {
  const test::TemporaryFolder folder;
  StateTree state;
  state.set("z", std::numeric_limits<double>::quiet_NaN());
  state.set("a", std::int64_t{1});
  save_checkpoint(folder / "x", {state}, {});
  const auto read = Checkpoint(folder / "x").shared();
  EXPECT_EQ(read.entries()[0].name, "z");
  EXPECT_TRUE(std::isnan(read.get<double>("z")));
}

TEST(Checkpoint, MayBeWrittenToWithoutTouchingTheFile) {
  const test::TemporaryFolder folder;
  save_checkpoint(folder / "x", {test::everything()}, {});
  {
    const auto read = Checkpoint(folder / "x").shared();
    read.get<StateTree>("model").get<at::Tensor>("net.0.weight").fill_(9);
  }
  EXPECT_THAT(differences(test::everything(), Checkpoint(folder / "x").shared()), IsEmpty());
}

TEST(Checkpoint, KeepsAModelUnderPyTorchsNames) {
  const test::TemporaryFolder folder;
  save_checkpoint(folder / "x", {test::everything()}, {});
  torch::nn::Sequential net(torch::nn::Linear(3, 2));
  EXPECT_THROW(load_weights(folder / "x" / "model.safetensors", *net), CheckpointError);  // net.0, not 0
  EXPECT_TRUE(std::filesystem::exists(folder / "x" / "tensor.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(folder / "x" / "text.safetensors"));
}

TEST(Checkpoint, GivesTensorsOfAnotherShapeThanWantedAsTheyAre) {
  const test::TemporaryFolder folder;
  StateTree model, state, wanted_model, wanted;
  model.set("weight", torch::arange(24.0).view({6, 4}));
  state.set("model", model);
  save_checkpoint(folder / "x", {state}, {});
  for (const auto& shape : {std::vector<std::int64_t>{4, 6}, {3, 4}, {9, 4}, {6, 4}}) {
    wanted_model.set("weight", TensorShard{.elements = torch::zeros({4}), .shape = shape, .begin = 8});
    wanted.set("model", wanted_model);
    const auto read = Checkpoint(folder / "x").shared(wanted).get<StateTree>("model");
    const auto* const value = read.find("weight");
    const bool is_alike = shape == std::vector<std::int64_t>{6, 4};
    ASSERT_EQ(std::holds_alternative<TensorShard>(*value), is_alike);
    if (is_alike) continue;
    EXPECT_EQ(std::get<at::Tensor>(*value).sizes(), (std::vector<std::int64_t>{6, 4}));
  }
}

// An embedding, a head that is tied to it, another one of the same shape, and two vectors that are alike.
TEST(ModelSize, CountsWhatHasTwoNamesOnce) {
  const test::TemporaryFolder folder;
  StateTree model;
  model.set("embedding.weight", torch::arange(12.0).view({4, 3}));
  model.set("head.weight", torch::arange(12.0).view({4, 3}));
  model.set("other.weight", torch::ones({4, 3}));
  model.set("norm.weight", torch::ones({3}));
  model.set("norm.bias", torch::ones({3}));
  StateTree state;
  state.set("model", model);
  save_checkpoint(folder / "x", {state}, {});
  for (const auto& path : {folder / "x", folder / "x" / "model.safetensors"}) {
    const auto size = model_size(path);
    EXPECT_EQ(size.parameters, 12 + 12 + 3 + 3) << path;
    EXPECT_EQ(size.largest_layer, 12) << path;
  }
}

TEST(Checkpoint, TakesThePlaceOfNothingElse) {
  const test::TemporaryFolder folder;
  std::filesystem::create_directory(folder / "thesis");
  std::ofstream(folder / "thesis" / "chapter_1.tex") << "text";
  std::ofstream(folder / "file") << "text";
  for (const auto* name : {"thesis", "file"})
    test::expect_error<IoError>([&] { save_checkpoint(folder / name, {}, {}); },
                                {name, "a checkpoint, an empty"});
  EXPECT_TRUE(std::filesystem::exists(folder / "thesis" / "chapter_1.tex"));
  EXPECT_EQ(folder.entries(), 2);
  std::filesystem::create_directory(folder / "empty");
  save_checkpoint(folder / "empty", {}, {});
}

TEST(Checkpoint, TakesThePlaceOfAnOlderOneAndLeavesNothingElse) {
  const test::TemporaryFolder folder;
  for (const double value : {1.0, 2.0}) {
    StateTree state;
    state.set("value", value);
    save_checkpoint(folder / "last.ckpt", {state}, {});
  }
  EXPECT_EQ(Checkpoint(folder / "last.ckpt").shared().get<double>("value"), 2.0);
  EXPECT_EQ(folder.entries(), 1);
}

TEST(Checkpoint, TakesASlashAtTheEndAndNeverReplacesAFile) {
  const test::TemporaryFolder folder;
  save_checkpoint(folder.path().string() + "/a.ckpt/", {test::everything()}, {});
  EXPECT_TRUE(std::filesystem::exists(folder / "a.ckpt" / "manifest.json"));
  folder.file("b.ckpt", "precious");
  test::expect_error<IoError>([&] { save_checkpoint(folder / "b.ckpt", {}, {}); }, {"b.ckpt", "folder"});
  EXPECT_EQ(test::content(folder / "b.ckpt"), "precious");
  EXPECT_EQ(folder.entries(), 2);
}

TEST(Checkpoint, NamesWhatCannotBe) {
  const test::TemporaryFolder folder;
  for (const char* name : {"a/b", "..", "", ".hidden", "a b"}) {
    StateTree state;
    state.set(name, true);
    test::expect_error<IoError>([&] { save_checkpoint(folder / "x", {state}, {}); }, {"name", name});
  }
  EXPECT_EQ(folder.entries(), 0);
  test::expect_error<IoError>([&] { Checkpoint(folder / "nothing"); }, {"nothing", "manifest.json"});
  folder.file("file", "");
  test::expect_error<IoError>([&] { save_checkpoint(folder / "file" / "x", {}, {}); }, {"x"});
  std::filesystem::create_symlink("loop", folder / "loop");
  for (const auto& path : {folder / "loop", folder / "loop" / "x", folder / std::string(300, 'x')}) {
    test::expect_error<IoError>([&] { save_checkpoint(path, {}, {}); }, {path.filename(), "rank 0"});
    test::expect_error<IoError>([&] { Checkpoint{path}; }, {path.filename()});
  }
}

// A tensor of 23 elements and one of 2, spread over ranks in runs of unequal length.
TensorShard shard_of(std::int64_t elements, at::IntArrayRef shape, int rank, int world) {
  const auto begin = elements * rank / world, end = elements * (rank + 1) / world;
  return {torch::arange(begin, end).to(torch::kFloat), shape.vec(), begin};
}

StateTree spread_state(int rank, int world) {
  StateTree model, state;
  model.set("large", shard_of(24, {4, 6}, rank, world));
  model.set("small", shard_of(2, {2}, rank, world));
  model.set("same", torch::ones({3}));
  state.set("model", model);
  return state;
}

class Resharded : public ::testing::TestWithParam<int> {};

TEST_P(Resharded, RunsGoToAnyNumberOfRanks) {
  const test::TemporaryFolder folder;
  const int saved = 4, loaded = GetParam();
  run_ranks(saved, [&](Communicator comm) {
    save_checkpoint(folder / "x", {spread_state(comm.rank(), saved)}, {}, comm);
  });
  for (int rank = 0; rank < loaded; ++rank) {
    const auto wanted = spread_state(rank, loaded);
    EXPECT_THAT(differences(wanted, Checkpoint(folder / "x").shared(wanted)), IsEmpty());
    EXPECT_THAT(differences(wanted, Checkpoint(folder / "x", Verify::kNeeded).shared(wanted)), IsEmpty());
  }
  const auto whole = Checkpoint(folder / "x").shared().get<StateTree>("model");
  EXPECT_TRUE(torch::equal(whole.get<at::Tensor>("large"), torch::arange(24.0F).view({4, 6})));
}

INSTANTIATE_TEST_SUITE_P(Worlds, Resharded, ::testing::Values(1, 2, 3, 8));

TEST(CheckpointRanks, EachKeepsItsOwn) {
  const test::TemporaryFolder folder;
  run_ranks(3, [&](Communicator comm) {
    StateTree own;
    own.set("rank", std::int64_t{comm.rank()});
    own.set("tensor", torch::full({2}, comm.rank()));
    save_checkpoint(folder / "x", {test::everything(), own}, {}, comm);
  });
  const Checkpoint checkpoint(folder / "x");
  EXPECT_EQ(checkpoint.info().world_size, 3);
  EXPECT_THAT(differences(test::everything(), checkpoint.shared()), IsEmpty());
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(checkpoint.own(rank).get<std::int64_t>("rank"), rank);
    EXPECT_EQ(checkpoint.own(rank).get<at::Tensor>("tensor")[0].item<int>(), rank);
  }
}

TEST(CheckpointRanks, ShareTheWorkIfAsked) {
  const test::TemporaryFolder folder;
  run_ranks(2, [&](Communicator comm) {
    save_checkpoint(folder / "x", {test::everything()}, {}, comm,
                    {.state_dict_type = StateDictType::kSharded});
  });
  EXPECT_THAT(differences(test::everything(), Checkpoint(folder / "x").shared()), IsEmpty());
  const auto index = nlohmann::json::parse(std::ifstream(folder / "x" / "model.safetensors.index.json"));
  EXPECT_EQ(index.at("metadata").at("total_size"), 28);
  EXPECT_EQ(index.at("weight_map").at("net.0.weight"), "model-00001-of-00002.safetensors");
  EXPECT_EQ(index.at("weight_map").at("net.0.bias"), "model-00002-of-00002.safetensors");
}

TEST(CheckpointRanks, AllHearOfAFailureOfOne) {
  const test::TemporaryFolder folder;
  save_checkpoint(folder / "x", {test::everything()}, {});
  run_ranks(3, [&](Communicator comm) {
    StateTree own;
    if (comm.rank() == 1) own.set("bad", torch::eye(2).to_sparse());
    const auto save = [&] { save_checkpoint(folder / "x", {{}, own}, {}, comm); };
    test::expect_error<IoError>(save, {"rank 1", "x", "ranks/1/bad"});
  });
  EXPECT_THAT(differences(test::everything(), Checkpoint(folder / "x").shared()), IsEmpty());
  EXPECT_EQ(folder.entries(), 1);
}

TEST(CheckpointRanks, AllHearThatTheirShardsAreOfOtherTypes) {
  const test::TemporaryFolder folder;
  run_ranks(2, [&](Communicator comm) {
    StateTree state;
    const auto type = comm.rank() == 0 ? torch::kFloat : torch::kDouble;
    state.set("w", TensorShard{torch::ones({2}, type), {4}, comm.rank() * 2});
    test::expect_error<IoError>([&] { save_checkpoint(folder / "x", {state}, {}, comm); },
                                {"tensor w", "one shape and dtype", "rank 0"});
    comm.barrier();
  });
  EXPECT_EQ(folder.entries(), 0);
}

TEST(CheckpointRanks, NameATensorOfWhichAPartIsMissing) {
  const test::TemporaryFolder folder;
  StateTree state;
  state.set("lost", TensorShard{torch::ones({2}), {5}, 1});
  test::expect_error<IoError>([&] { save_checkpoint(folder / "x", {state}, {}); }, {"lost", "5 elements"});
  EXPECT_EQ(folder.entries(), 0);
}

}  // namespace
}  // namespace lockstep
