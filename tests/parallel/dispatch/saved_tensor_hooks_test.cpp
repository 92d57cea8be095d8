// Saved tensors pass through the hooks of the innermost scope and of no other.
#include <lockstep/parallel/dispatch/engine_hooks.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

#include <lockstep/base/error.h>

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct Counts {
  int packed = 0, unpacked = 0;
};

SavedTensorHooks counting(Counts& counts) {
  return {.pack = [&](const at::Tensor& tensor) -> std::any {
            ++counts.packed;
            return tensor;
          },
          .unpack =
              [&](const std::any& packed) {
                ++counts.unpacked;
                return std::any_cast<const at::Tensor&>(packed);
              }};
}

at::Tensor threes() { return at::full({2}, 3.0f).set_requires_grad(true); }

TEST(SavedTensorHooks, PackInForwardAndUnpackInBackward) {
  const auto weight = threes();
  Counts counts;
  at::Tensor loss;
  {
    const ScopedSavedTensorHooks scope(counting(counts));
    loss = (weight * weight.exp()).sum();  // saves weight, its exponential, and that again
  }
  EXPECT_EQ(counts.packed, 3);
  EXPECT_EQ(counts.unpacked, 0);
  loss.backward();
  EXPECT_EQ(counts.unpacked, 3);
  EXPECT_TRUE(at::allclose(weight.grad(), 4 * weight.detach().exp()));
}

// Offloading in small: to another place in memory and dtype, without loss for these numbers.
TEST(SavedTensorHooks, KeepSomethingElseThanTheTensor) {
  const auto input = at::arange(6, at::kFloat).reshape({2, 3});
  torch::nn::Linear layer(3, 2);
  layer->forward(input).pow(2).sum().backward();
  const auto expected = layer->weight.grad().clone();
  layer->zero_grad();
  std::vector<at::Tensor> shelf;
  SavedTensorHooks hooks{
      .pack = [&](const at::Tensor& tensor) -> std::any {
        EXPECT_FALSE(tensor.requires_grad() && at::GradMode::is_enabled());
        shelf.push_back(tensor.to(at::kDouble));
        return shelf.size() - 1;
      },
      .unpack =
          [&](const std::any& packed) { return shelf[std::any_cast<std::size_t>(packed)].to(at::kFloat); }};
  const ScopedSavedTensorHooks scope(std::move(hooks));
  layer->forward(input).pow(2).sum().backward();
  EXPECT_GE(shelf.size(), 2u);
  EXPECT_TRUE(layer->weight.grad().equal(expected));
}

TEST(SavedTensorHooks, DecideWhatBackwardSees) {
  const auto weight = threes();
  const ScopedSavedTensorHooks scope(
      {.pack = [](const at::Tensor& tensor) -> std::any { return tensor; },
       .unpack = [](const std::any& packed) { return std::any_cast<const at::Tensor&>(packed) * 10; }});
  weight.pow(2).sum().backward();
  EXPECT_TRUE(weight.grad().equal(at::full({2}, 60.0f)));
}

TEST(SavedTensorHooks, OfTheInnermostScopeAlone) {
  const auto weight = threes();
  Counts outer, inner;
  const ScopedSavedTensorHooks outer_scope(counting(outer));
  {
    const ScopedSavedTensorHooks inner_scope(counting(inner));
    weight.exp().sum().backward();
  }
  EXPECT_EQ(inner.packed, 1);
  EXPECT_EQ(outer.packed, 0);
  weight.exp().sum().backward();
  EXPECT_EQ(inner.packed, 1);
  EXPECT_EQ(outer.packed, 1);
}

TEST(SavedTensorHooks, OfThisThreadAndScopeOnly) {
  Counts counts;
  {
    const ScopedSavedTensorHooks scope(counting(counts));
    std::thread([] { threes().exp().sum().backward(); }).join();
  }
  threes().exp().sum().backward();
  EXPECT_EQ(counts.packed, 0);
}

TEST(SavedTensorHooks, LiveAsLongAsTheGraph) {
  const auto captured = std::make_shared<int>(0);
  {
    at::Tensor loss;
    {
      const ScopedSavedTensorHooks scope(
          {.pack = [captured](const at::Tensor& tensor) -> std::any { return tensor; },
           .unpack = [](const std::any& packed) { return std::any_cast<const at::Tensor&>(packed); }});
      loss = threes().exp().sum();
    }
    EXPECT_EQ(captured.use_count(), 2);
    loss.backward();
  }
  EXPECT_EQ(captured.use_count(), 1);
}

TEST(SavedTensorHooks, NothingIsSavedWithoutGradients) {
  Counts counts;
  const ScopedSavedTensorHooks scope(counting(counts));
  at::ones({2}).exp();
  const at::NoGradGuard no_grad;
  threes().exp();
  EXPECT_EQ(counts.packed, 0);
}

TEST(SavedTensorHooks, ErrorsComeOutOfForwardAndBackward) {
  const auto fail = [](const char* what) -> at::Tensor { throw DataError("test", {.what = what}); };
  {
    const ScopedSavedTensorHooks scope(
        {.pack = [&](const at::Tensor&) -> std::any { return fail("packing"); },
         .unpack = [](const std::any&) { return at::Tensor(); }});
    EXPECT_THAT([] { threes().exp(); }, ThrowsMessage<DataError>(HasSubstr("packing")));
  }
  const ScopedSavedTensorHooks scope({.pack = [](const at::Tensor&) -> std::any { return 0; },
                                      .unpack = [&](const std::any&) { return fail("unpacking"); }});
  EXPECT_THAT([] { threes().exp().sum().backward(); }, ThrowsMessage<DataError>(HasSubstr("unpacking")));
}

TEST(SavedTensorHooks, NeedBothFunctions) {
  EXPECT_THAT([] { ScopedSavedTensorHooks({.pack = [](const at::Tensor&) { return std::any(); }}); },
              ThrowsMessage<ConfigError>(HasSubstr("no unpack")));
}

}  // namespace
}  // namespace lockstep
