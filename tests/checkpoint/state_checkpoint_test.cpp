#include <cmath>
#include <fstream>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/checkpoint/state_checkpoint.h>
#include <lockstep/torch.h>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

StateTree everything() {
  StateTree model, part, state;
  model.set("net.0.weight", torch::arange(6).view({2, 3}).to(torch::kFloat));
  model.set("net.0.bias", torch::ones({2}, torch::kBFloat16));
  part.set("tensors", StateList(std::vector<at::Tensor>{torch::zeros({0}), torch::tensor(3)}));
  part.set("numbers", StateList(std::vector<double>{1.0, 0.1, std::numeric_limits<double>::infinity(),
                                                    -std::numeric_limits<double>::infinity()}));
  part.set("bytes", StateBytes{std::byte{0}, std::byte{255}, std::byte{16}});
  part.set("empty", StateTree());
  part.set("none", StateList());
  state.set("model", model);
  state.set("part-1.x_", part);
  state.set("integer", std::numeric_limits<std::int64_t>::min());
  state.set("whole", 2.0);
  state.set("flag", true);
  state.set("text", std::string("\"quoted\"\n"));
  state.set("tensor", torch::tensor(1.5, torch::kDouble));
  return state;
}

TEST(StateCheckpoint, GivesBackWhatItWasGiven) {
  const test::TemporaryFolder folder;
  write_state(folder / "all.ckpt", everything(), {.world_size = 2, .strategy = "ddp"});
  EXPECT_THAT(differences(everything(), read_state(folder / "all.ckpt")), ::testing::IsEmpty());
  EXPECT_TRUE(everything() == read_state(folder / "all.ckpt"));
  EXPECT_EQ(folder.entries(), 1);
}

TEST(StateCheckpoint, KeepsTheOrderAndNaN) {
  const test::TemporaryFolder folder;
  StateTree state;
  state.set("z", std::numeric_limits<double>::quiet_NaN());
  state.set("a", std::int64_t{1});
  write_state(folder / "x", state, {});
  const auto read = read_state(folder / "x");
  EXPECT_EQ(read.entries()[0].name, "z");
  EXPECT_TRUE(std::isnan(read.get<double>("z")));
}

TEST(StateCheckpoint, KeepsAModelUnderPyTorchsNames) {
  const test::TemporaryFolder folder;
  write_state(folder / "x", everything(), {});
  torch::nn::Sequential net(torch::nn::Linear(3, 2));
  EXPECT_THROW(load_weights(folder / "x" / "model.safetensors", *net), CheckpointError);  // net.0, not 0
  EXPECT_TRUE(std::filesystem::exists(folder / "x" / "tensor.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(folder / "x" / "text.safetensors"));
}

TEST(StateCheckpoint, NamesWhatCannotBe) {
  const test::TemporaryFolder folder;
  for (const char* name : {"a/b", "..", "", ".hidden", "a b"}) {
    StateTree state;
    state.set(name, true);
    test::expect_error<ConfigError>([&] { write_state(folder / "x", state, {}); }, {"name", name});
  }
  EXPECT_EQ(folder.entries(), 0);
  test::expect_error<IoError>([&] { read_state(folder / "nothing"); }, {"nothing", "manifest.json"});
}

TEST(StateCheckpoint, NamesWhatIsDamaged) {
  const test::TemporaryFolder folder;
  const auto read_with = [&](const std::string& manifest) {
    write_state(folder / "x", everything(), {});
    std::ofstream(folder / "x" / "manifest.json") << manifest;
    read_state(folder / "x");
  };
  const auto state = [](const std::string& text) {
    return R"({"format_version": 1, "state": {)" + text + "}}";
  };
  const auto expect = [&](const std::string& manifest, const std::string& part) {
    test::expect_error<CheckpointError>([&] { read_with(manifest); }, {part});
  };
  expect("{", "manifest.json");
  expect(R"({"format_version": 9, "state": {}})", "format_version 1");
  expect(state(R"("a": null)"), "null");
  expect(state(R"("a": {"tensor": "lost"})"), "lost");
  expect(state(R"("a": {"number": "many"})"), "many");
  expect(state(R"("a": {"bytes": "0g"})"), "0g");
  expect(state(R"("a": {"other": 1})"), "other");
}

}  // namespace
}  // namespace lockstep
