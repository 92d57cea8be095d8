// Hooks on accumulated gradients, and gradients that are returned: as torch.autograd's.
#include <lockstep/parallel/autograd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <lockstep/base/error.h>

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

at::Tensor parameter(float value = 3) { return at::full({2}, value).set_requires_grad(true); }

TEST(PostAccumulateGradHook, RunsInTheOrderOfRegistrationBeforeBackwardReturns) {
  const auto weight = parameter();
  std::vector<int> calls;
  for (const int name : {1, 2, 3}) {
    register_post_accumulate_grad_hook(weight, [&calls, name, weight](const at::Tensor& seen) {
      EXPECT_TRUE(seen.is_same(weight));
      EXPECT_TRUE(seen.grad().equal(at::full({2}, 6.0f)));
      calls.push_back(name);
    });
  }
  (weight * weight).sum().backward();
  EXPECT_THAT(calls, ElementsAre(1, 2, 3));
}

TEST(PostAccumulateGradHook, RunsOncePerBackwardOnTheAccumulatedGradient) {
  const auto weight = parameter();
  std::vector<float> seen;
  register_post_accumulate_grad_hook(weight,
                                     [&](const at::Tensor& t) { seen.push_back(t.grad()[0].item<float>()); });
  for (int window = 0; window < 2; ++window)
    (weight.exp().sum() * 0 + (weight * 2 + weight).sum()).backward();
  EXPECT_THAT(seen, ElementsAre(3, 6));
}

TEST(PostAccumulateGradHook, MayReplaceOrTakeTheGradient) {
  const auto weight = parameter();
  register_post_accumulate_grad_hook(weight, [](const at::Tensor& t) { t.mutable_grad() = t.grad() * 10; });
  weight.sum().backward();
  EXPECT_TRUE(weight.grad().equal(at::full({2}, 10.0f)));

  at::Tensor taken;
  register_post_accumulate_grad_hook(weight,
                                     [&](const at::Tensor& t) { std::swap(taken, t.mutable_grad()); });
  weight.sum().backward();
  EXPECT_FALSE(weight.grad().defined());
  EXPECT_TRUE(taken.equal(at::full({2}, 110.0f)));  // (10 + 1) * 10: the first hook came first
}

TEST(PostAccumulateGradHook, IsRemovedByItsHandle) {
  const auto weight = parameter();
  const auto captured = std::make_shared<int>(0);
  int others = 0;
  auto handle = register_post_accumulate_grad_hook(weight, [captured](const at::Tensor&) { ++*captured; });
  register_post_accumulate_grad_hook(weight, [&](const at::Tensor&) { ++others; });
  weight.sum().backward();
  handle.remove();
  EXPECT_EQ(captured.use_count(), 1) << "a removed hook keeps what it captured";
  handle.remove();
  weight.sum().backward();
  EXPECT_EQ(*captured, 1);
  EXPECT_EQ(others, 2);
}

TEST(PostAccumulateGradHook, IsRemovedAtTheEndOfItsScope) {
  const auto weight = parameter();
  int calls = 0;
  const auto count = [&](const at::Tensor&) { ++calls; };
  ScopedHandle outer;
  {
    ScopedHandle inner(register_post_accumulate_grad_hook(weight, count));
    const ScopedHandle second(register_post_accumulate_grad_hook(weight, count));
    outer = std::move(inner);
    weight.sum().backward();
    EXPECT_EQ(calls, 2);
  }
  weight.sum().backward();
  EXPECT_EQ(calls, 3);
  outer = {};
  weight.sum().backward();
  EXPECT_EQ(calls, 3);
}

TEST(PostAccumulateGradHook, MayRemoveItselfAndOthersAndRegisterMore) {
  const auto weight = parameter();
  std::vector<int> calls;
  const auto log = [&calls](int name) {
    return [&calls, name](const at::Tensor&) { calls.push_back(name); };
  };
  RemovableHandle self, next;
  self = register_post_accumulate_grad_hook(weight, [&, name = std::string(100, 'x')](const at::Tensor& t) {
    self.remove();
    next.remove();
    for (int i = 10; i < 20; ++i) register_post_accumulate_grad_hook(t, log(i));
    calls.push_back(static_cast<int>(name.size()));
  });
  next = register_post_accumulate_grad_hook(weight, log(1));
  register_post_accumulate_grad_hook(weight, log(2));
  weight.sum().backward();
  EXPECT_THAT(calls, ElementsAre(100, 2));
  calls.clear();
  weight.sum().backward();
  EXPECT_THAT(calls, ElementsAre(2, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19));
}

TEST(PostAccumulateGradHook, HandleMayOutliveTheParameter) {
  RemovableHandle handle;
  {
    const auto weight = parameter();
    handle = register_post_accumulate_grad_hook(weight, [](const at::Tensor&) {});
  }
  handle.remove();
}

TEST(PostAccumulateGradHook, StaysWhenTheModuleIsConverted) {
  torch::nn::Linear layer(3, 2);
  std::vector<at::ScalarType> dtypes;
  register_post_accumulate_grad_hook(layer->weight,
                                     [&](const at::Tensor& t) { dtypes.push_back(t.grad().scalar_type()); });
  layer->to(at::kBFloat16);
  for (int step = 0; step < 2; ++step) {
    layer->zero_grad();
    layer->forward(at::ones({1, 3}, at::kBFloat16)).sum().backward();
  }
  EXPECT_THAT(dtypes, ElementsAre(at::kBFloat16, at::kBFloat16));
}

TEST(PostAccumulateGradHook, FollowsAnotherOwnerOfTheSlot) {
  struct Foreign final : torch::autograd::PostAccumulateGradHook {
    explicit Foreign(std::vector<int>& log) : calls(log) {}
    void operator()(const at::Tensor&) override { calls.push_back(0); }
    std::vector<int>& calls;
  };
  const auto weight = parameter();
  std::vector<int> calls;
  torch::autograd::impl::set_post_acc_grad_hooks(weight, std::make_unique<Foreign>(calls));
  register_post_accumulate_grad_hook(weight, [&](const at::Tensor&) { calls.push_back(1); });
  weight.sum().backward();
  EXPECT_THAT(calls, ElementsAre(0, 1));
}

TEST(PostAccumulateGradHook, ErrorsLeaveBackwardAndTheNextOneWorks) {
  const auto weight = parameter();
  int failures = 1, after = 0;
  register_post_accumulate_grad_hook(weight, [&](const at::Tensor&) {
    if (failures-- > 0) throw DataError("test", {.what = "no such sample"});
  });
  auto removed = register_post_accumulate_grad_hook(weight, [&](const at::Tensor&) { ++after; });
  EXPECT_THAT([&] { weight.sum().backward(); }, ThrowsMessage<DataError>(HasSubstr("no such sample")));
  EXPECT_EQ(after, 0);
  weight.sum().backward();
  EXPECT_EQ(after, 1);
  removed.remove();
  weight.sum().backward();
  EXPECT_EQ(after, 1);
}

TEST(PostAccumulateGradHook, DoesNotRunWhereNothingIsAccumulated) {
  const auto weight = parameter(), unused = parameter();
  int calls = 0;
  for (const auto& t : {weight, unused}) register_post_accumulate_grad_hook(t, [&](const auto&) { ++calls; });
  autograd_grad((weight * 2 + unused * 2).sum(), {weight, unused});
  EXPECT_EQ(calls, 0);
  weight.sum().backward();
  EXPECT_EQ(calls, 1);
}

TEST(PostAccumulateGradHook, RefusesTensorsWithoutAGradientOfTheirOwn) {
  const auto refuses = [](const at::Tensor& t, const char* got) {
    EXPECT_THAT([&] { register_post_accumulate_grad_hook(t, [](const at::Tensor&) {}); },
                ThrowsMessage<ConfigError>(HasSubstr(got)));
  };
  refuses({}, "undefined");
  refuses(at::ones({2}), "does not require a gradient");
  refuses(parameter() * 2, "the result of an operator");
}

TEST(AutogradGrad, ReturnsGradientsAndAccumulatesNone) {
  torch::nn::Linear layer(3, 2);
  const auto input = at::ones({4, 3});
  const auto gradients = autograd_grad(layer->forward(input).sum(), layer->parameters());
  ASSERT_EQ(gradients.size(), 2u);
  EXPECT_TRUE(gradients[0].equal(at::full({2, 3}, 4.0f)));
  EXPECT_TRUE(gradients[1].equal(at::full({2}, 4.0f)));
  EXPECT_FALSE(layer->weight.grad().defined());
}

TEST(AutogradGrad, KeepsTheGraphWhenAsked) {
  const auto weight = parameter();
  const auto loss = weight.pow(3).sum();
  EXPECT_TRUE(autograd_grad(loss, {weight}, {.retain_graph = true})[0].equal(at::full({2}, 27.0f)));
  const auto slope = autograd_grad(loss, {weight}, {.create_graph = true})[0];
  EXPECT_TRUE(autograd_grad(slope.sum(), {weight})[0].equal(at::full({2}, 18.0f)));
  autograd_grad(loss, {weight}, {.retain_graph = false});
  EXPECT_THROW(autograd_grad(loss, {weight}), c10::Error);
}

TEST(AutogradGrad, NamesUnusedParameters) {
  const auto weight = parameter(), unused = parameter();
  EXPECT_THAT(([&] {
                autograd_grad(weight.sum(), {weight, unused});
              }),
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("parameter 1 [2]"), HasSubstr("allow_unused"))));
  const auto gradients = autograd_grad(weight.sum(), {weight, unused}, {.allow_unused = true});
  EXPECT_TRUE(gradients[0].defined());
  EXPECT_FALSE(gradients[1].defined());
}

}  // namespace
}  // namespace lockstep
