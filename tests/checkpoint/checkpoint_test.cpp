#include <fstream>

#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/checkpoint/checkpoint.h>
#include <nlohmann/json.hpp>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

NamedTensors weights(float value) {
  return {{"a.weight", torch::full({2, 3}, value)}, {"b", torch::ones({4}, torch::kLong)}};
}

TEST(Checkpoint, IsAFolderWithAManifest) {
  const test::TemporaryFolder folder;
  save_checkpoint(folder / "last.ckpt", weights(1),
                  {.epoch = 2, .global_step = 7, .world_size = 3, .strategy = "ddp"});
  const auto manifest = nlohmann::json::parse(std::ifstream(folder / "last.ckpt" / "manifest.json"));
  EXPECT_EQ(manifest.at("format_version"), 1);
  EXPECT_EQ(manifest.at("epoch"), 2);
  EXPECT_EQ(manifest.at("global_step"), 7);
  EXPECT_EQ(manifest.at("world_size"), 3);
  EXPECT_EQ(manifest.at("tensors").at("a.weight"),
            (nlohmann::json{{"file", "model.safetensors"}, {"dtype", "F32"}, {"shape", {2, 3}}}));
  EXPECT_EQ(folder.entries(), 1);
}

TEST(Checkpoint, TakesThePlaceOfAnOlderOneAndLeavesNothingElse) {
  const test::TemporaryFolder folder;
  for (const float value : {1.0F, 2.0F}) save_checkpoint(folder / "last.ckpt", weights(value), {});
  EXPECT_EQ(folder.entries(), 1);
  const auto size = std::filesystem::file_size(folder / "last.ckpt" / "model.safetensors");
  EXPECT_GT(size, 56U);
}

TEST(Checkpoint, TakesASlashAtTheEndAndNeverReplacesAFile) {
  const test::TemporaryFolder folder;
  save_checkpoint(folder.path().string() + "/a.ckpt/", weights(1), {});
  EXPECT_TRUE(std::filesystem::exists(folder / "a.ckpt" / "manifest.json"));
  folder.file("b.ckpt", "precious");
  test::expect_error<IoError>([&] { save_checkpoint(folder / "b.ckpt", weights(1), {}); },
                              {"b.ckpt", "folder"});
  EXPECT_EQ(test::content(folder / "b.ckpt"), "precious");
  EXPECT_EQ(folder.entries(), 2);
}

TEST(Checkpoint, NamesAFolderThatCannotBeWritten) {
  const test::TemporaryFolder folder;
  folder.file("file", "");
  test::expect_error<IoError>([&] { save_checkpoint(folder / "file" / "last.ckpt", weights(1), {}); },
                              {"last.ckpt"});
}

struct ModelImpl : torch::nn::Module {
  ModelImpl() {
    weight = register_parameter("weight", torch::zeros({2, 3}));
    count = register_buffer("count", torch::zeros({1}, torch::kLong));
  }
  torch::Tensor weight, count;
};

class Weights : public ::testing::Test {
 protected:
  void refuse(const NamedTensors& tensors, const std::vector<std::string>& parts) {
    write_weights(folder_ / "w", tensors);
    test::expect_error<CheckpointError>([&] { load_weights(folder_ / "w", model_); }, parts);
    EXPECT_EQ(model_.weight.sum().item<float>(), 0) << "a refused file changed the model";
  }
  test::TemporaryFolder folder_;
  ModelImpl model_;
};

TEST_F(Weights, GoToAFileAndBack) {
  write_weights(folder_ / "w",
                {{"weight", torch::arange(6.0F).view({3, 2}).t()}, {"count", torch::full({1}, 9L)}});
  load_weights(folder_ / "w", model_);
  EXPECT_TRUE(torch::equal(model_.weight, torch::arange(6.0F).view({3, 2}).t()));
  EXPECT_EQ(model_.count.item<std::int64_t>(), 9);
  EXPECT_TRUE(model_.weight.is_leaf() && model_.weight.requires_grad());
}

TEST_F(Weights, OfAnotherModelAreRefusedByName) {
  const auto good = torch::ones({2, 3});
  const auto count = torch::zeros({1}, torch::kLong);
  refuse({{"weight", good}}, {"count", "none of that name"});
  refuse({{"weight", good}, {"count", count}, {"bias", good}}, {"bias"});
  refuse({{"weight", torch::ones({3, 2})}, {"count", count}}, {"weight", "[2, 3]", "[3, 2]"});
  refuse({{"weight", good.to(torch::kDouble)}, {"count", count}}, {"weight", "F32", "F64"});
}

}  // namespace
}  // namespace lockstep
