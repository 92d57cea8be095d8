#include <lockstep/state/module_state.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/torch.h>

#include "support/expect_error.h"

namespace lockstep {
namespace {

torch::nn::Sequential net(std::int64_t width = 3) {
  return torch::nn::Sequential(torch::nn::Linear(2, width), torch::nn::BatchNorm1d(width));
}

TEST(ModuleState, NamesParametersAndBuffersAndAliasesThem) {
  auto module = net();
  const auto state = module_state(*module);
  EXPECT_EQ(state.size(), 7);
  EXPECT_EQ(state.get<at::Tensor>("1.num_batches_tracked").scalar_type(), at::kLong);
  const auto& weight = state.get<at::Tensor>("0.weight");
  EXPECT_EQ(weight.const_data_ptr(), module->named_parameters()["0.weight"].const_data_ptr());
  EXPECT_FALSE(weight.requires_grad());
}

TEST(ModuleState, LeavesOutBuffersThatAreNotThere) {
  const torch::nn::BatchNorm1d module(
      torch::nn::BatchNorm1dOptions(3).affine(false).track_running_stats(false));
  EXPECT_TRUE(module_state(*module).empty());
}

TEST(ModuleState, IsCopiedInPlace) {
  auto from = net(), to = net();
  from->forward(torch::randn({4, 2}));
  const auto* memory = to->parameters()[0].const_data_ptr();
  load_module_state(*to, module_state(*from));
  EXPECT_EQ(differences(module_state(*from), module_state(*to)), std::vector<std::string>());
  EXPECT_EQ(to->parameters()[0].const_data_ptr(), memory);
}

TEST(ModuleState, NamesEveryTensorThatDoesNotFitAndCopiesNothing) {
  auto module = net();
  const auto before = module_state(*module).clone();
  StateTree wrong;
  wrong.set("0.weight", torch::zeros({3, 2}));
  wrong.set("0.bias", torch::zeros({4}));
  wrong.set("2.bias", torch::zeros({3}));
  StateTree checkpoint;
  checkpoint.set("model", wrong);
  test::expect_error<CheckpointError>([&] { load_module_state(*module, checkpoint.get<StateTree>("model")); },
                                      {"0.bias: expected tensor Float [3], got tensor Float [4]",
                                       "1.weight: expected tensor Float [3], got none",
                                       "2.bias: expected none, got tensor Float [3]", "state model"});
  EXPECT_EQ(module_state(*module), before);
}

TEST(ModuleState, ThatIsNotStrictReturnsTheNamesThatOnlyOneSideHas) {
  auto module = net();
  const auto before = module_state(*module).clone();
  StateTree other;
  other.set("0.bias", torch::full({3}, 7.0F));
  other.set("2.bias", torch::zeros({3}));
  const auto keys = load_module_state(*module, other, false);
  EXPECT_EQ(keys.unexpected_keys, std::vector<std::string>{"2.bias"});
  EXPECT_EQ(keys.missing_keys.size(), 6);
  EXPECT_EQ(keys.missing_keys.front(), "0.weight");
  EXPECT_EQ(module->parameters()[1].sum().item<float>(), 21);
  EXPECT_THAT(differences(before, module_state(*module)),
              ::testing::ElementsAre(::testing::HasSubstr("0.bias")));
  other.set("0.bias", torch::zeros({4}));
  EXPECT_THROW(load_module_state(*module, other, false), CheckpointError)
      << "another shape is always an error";
}

TEST(RandomState, DrawsTheSameNumbersAgain) {
  torch::manual_seed(3);
  torch::randn({5});  // a pair's second normal number is kept for the next call
  const auto state = random_state();
  const auto first = torch::randn({5});
  load_random_state(state);
  EXPECT_TRUE(torch::equal(torch::randn({5}), first));
}

TEST(RandomState, RefusesWhatIsNone) {
  StateTree wrong;
  wrong.set("cpu", torch::zeros({5}));
  const auto before = random_state();
  test::expect_error<CheckpointError>([&] { load_random_state(wrong); }, {"cpu", "Byte", "Float [5]"});
  test::expect_error<CheckpointError>([] { load_random_state({}); }, {"cpu", "none"});
  EXPECT_EQ(random_state(), before);
}

}  // namespace
}  // namespace lockstep
