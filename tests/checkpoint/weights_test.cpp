// Weights as one safetensors file.
#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/checkpoint/weights.h>
#include <lockstep/torch.h>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

struct ModelImpl : torch::nn::Module {
  ModelImpl() {
    weight = register_parameter("weight", torch::zeros({2, 3}));
    count = register_buffer("count", torch::zeros({1}, torch::kLong));
  }
  torch::Tensor weight, count;
};
TORCH_MODULE(Model);

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
  refuse({{"weight", good}}, {"count: expected tensor Long [1], got none"});
  refuse({{"weight", good}, {"count", count}, {"bias", good}}, {"bias"});
  refuse({{"weight", torch::ones({3, 2})}, {"count", count}}, {"weight", "[2, 3]", "[3, 2]"});
  refuse({{"weight", good.to(torch::kInt)}, {"count", count}}, {"weight", "Float", "Int"});
  refuse({{"module.weight", good}, {"module.count", count}},
         {"behind \"module.\"", "inner module", "removeprefix", "ls::Rename"});
}

TEST_F(Weights, OfEveryWidthAreCast) {
  for (const auto type : {torch::kDouble, torch::kFloat, torch::kHalf, torch::kBFloat16}) {
    model_.weight.detach().zero_();
    write_weights(folder_ / "w", {{"weight", torch::full({2, 3}, 0.5, type)}, {"count", model_.count}});
    load_weights(folder_ / "w", model_);
    EXPECT_TRUE(torch::equal(model_.weight, torch::full({2, 3}, 0.5F))) << type;
  }
}

TEST_F(Weights, ThatAreNotStrictLeaveTheRestAsItIs) {
  model_.count.fill_(5);
  write_weights(folder_ / "w", {{"weight", torch::ones({2, 3})}, {"bias", torch::ones({3})}});
  const auto keys = load_weights(folder_ / "w", model_, false);
  EXPECT_EQ(keys.missing_keys, std::vector<std::string>{"count"});
  EXPECT_EQ(keys.unexpected_keys, std::vector<std::string>{"bias"});
  EXPECT_EQ(model_.weight.sum().item<float>(), 6);
  EXPECT_EQ(model_.count.item<std::int64_t>(), 5);
}

struct Forgiving : ModelImpl {
  explicit Forgiving(int more) {
    extra = register_parameter("extra", torch::full({1}, static_cast<float>(more)));
  }
  bool strict_loading() const { return false; }
  torch::Tensor extra;
};

TEST_F(Weights, MakeAModel) {
  write_weights(folder_ / "w", {{"weight", torch::ones({2, 3})}, {"count", torch::full({1}, 9L)}});
  EXPECT_EQ(load_from_checkpoint<ModelImpl>(folder_ / "w")->count.item<std::int64_t>(), 9);
  const Model held = load_from_checkpoint<Model>(folder_ / "w");
  EXPECT_EQ(held->count.item<std::int64_t>(), 9);
  const auto forgiving = load_from_checkpoint<Forgiving>(folder_ / "w", 4);
  EXPECT_EQ(forgiving->weight.sum().item<float>(), 6);
  EXPECT_EQ(forgiving->extra.item<float>(), 4);
}

}  // namespace
}  // namespace lockstep
