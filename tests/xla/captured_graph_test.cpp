// Steps that are recorded once and replayed: what they read, write and draw, and what they refuse.
#include <gmock/gmock.h>

#include <torch/torch.h>

#include <lockstep/device/captured_step.h>

#include "xla/device.h"
#include "xla/device_case.h"

namespace lockstep::xla {
namespace {

using namespace test;
using ::testing::HasSubstr;

const auto kOptions = at::TensorOptions(kDevice).dtype(at::kFloat);

at::Tensor pair_of_floats(double value) { return at::full({2}, value, kOptions); }
float first_of(const at::Tensor& tensor) { return tensor.cpu()[0].item<float>(); }

TEST(XlaCapturedStep, IsReplayedWithNewInputsAfterTheWarmUp) {
  int calls = 0;
  const auto sum = at::zeros({2}, kOptions);
  CapturedStep step(
      kDevice,
      [&](const Tensors& inputs) {
        ++calls;
        sum.add_(inputs[0]);
        return Tensors{sum * 10};
      },
      /*warm_up=*/2);
  const auto replays = counts().replays;
  std::vector<float> found;
  for (int i = 1; i <= 6; ++i) found.push_back(first_of(step({pair_of_floats(i)})[0]));
  EXPECT_EQ(found, (std::vector<float>{10, 30, 60, 100, 150, 210}));
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(step.replays(), 4);
  EXPECT_EQ(counts().replays - replays, 4);
  EXPECT_EQ(step.refusal(), "");
}

TEST(XlaCapturedStep, CallsTheFunctionForInputsOfOtherShapes) {
  int calls = 0;
  CapturedStep step(
      kDevice,
      [&](const Tensors& inputs) {
        ++calls;
        return Tensors{inputs[0].sum().view({1})};
      },
      /*warm_up=*/1);
  for (int i = 0; i < 3; ++i) step({pair_of_floats(1)});
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(first_of(step({at::ones({7}, kOptions)})[0]), 7);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(first_of(step({pair_of_floats(3)})[0]), 6);
  EXPECT_EQ(calls, 3);
}

// What the host wrote between two replays is what the next one reads, in whatever shape it was made.
TEST(XlaCapturedStep, ReadsWhatWasWrittenBetweenReplays) {
  const auto weight = at::ones({2, 3}, kOptions);
  CapturedStep step(
      kDevice,
      [&](const Tensors& inputs) {
        weight.mul_(2);
        return Tensors{(weight * inputs[0].sum()).flatten()};
      },
      /*warm_up=*/1);
  for (int i = 0; i < 3; ++i) step({pair_of_floats(0.5)});
  EXPECT_EQ(first_of(weight.flatten()), 8);
  weight.copy_(at::full({2, 3}, 5.0));
  EXPECT_EQ(first_of(step({pair_of_floats(0.5)})[0]), 10);
  weight.flatten().add_(1);
  EXPECT_EQ(first_of(step({pair_of_floats(0.5)})[0]), 22);
  weight.select(0, 0).fill_(1);
  EXPECT_EQ(first_of(step({pair_of_floats(0.5)})[0]), 2);
  EXPECT_EQ(weight.cpu()[1][0].item<float>(), 44);
  EXPECT_EQ(step.replays(), 5);
}

// Memory of an input is used again, but not where somebody else holds what it was.
TEST(XlaCapturedStep, OverwritesWhatNobodyElseHolds) {
  const auto weight = at::ones({4096}, kOptions);
  CapturedStep step(
      kDevice,
      [&](const Tensors&) {
        weight.mul_(2);
        return Tensors{};
      },
      /*warm_up=*/1);
  const auto address = [&] {
    const std::lock_guard lock(device_mutex());
    return read(weight).node->buffer->address();
  };
  for (int i = 0; i < 3; ++i) step({});
  const auto before = address();
  step({});
  EXPECT_EQ(address(), before);
  const auto held = weight.clone();
  step({});
  step({});
  EXPECT_EQ(first_of(held), 16);
  EXPECT_EQ(first_of(weight), 64);
}

// The array is given to the replay, which overwrites it.
TEST(XlaCapturedStep, ComputesFirstWhatIsReadLaterOfItsMemory) {
  const auto weight = at::ones({8}, kOptions);
  CapturedStep step(
      kDevice,
      [&](const Tensors&) {
        weight.mul_(2);
        return Tensors{};
      },
      /*warm_up=*/1);
  for (int i = 0; i < 3; ++i) step({});
  const auto later = weight + 1;
  step({});
  step({});
  EXPECT_EQ(first_of(later), 9);
  EXPECT_EQ(first_of(weight), 32);
}

TEST(XlaCapturedStep, DrawsOtherNumbersInEachReplay) {
  auto generator = at::globalContext().defaultGenerator(kDevice);
  const auto draw = [](const Tensors& inputs) {
    return Tensors{at::dropout(inputs[0], 0.5, true), at::randn({50}, kOptions)};
  };
  const auto input = at::ones({50}, kOptions);
  CapturedStep step(kDevice, draw, /*warm_up=*/1);
  generator.set_current_seed(41);
  std::vector<Tensors> got;
  for (int i = 0; i < 4; ++i) {
    const auto outputs = step({input});
    got.push_back({outputs[0].cpu(), outputs[1].cpu()});
  }
  EXPECT_EQ(step.replays(), 3);
  // The same numbers as without a recording.
  generator.set_current_seed(41);
  for (const auto& drawn : got) {
    const auto expected = draw({input});
    EXPECT_TRUE(at::equal(drawn[0], expected[0].cpu()));
    EXPECT_TRUE(at::equal(drawn[1], expected[1].cpu()));
  }
}

TEST(XlaCapturedStep, IsNotCapturedWhereTheHostTakesPart) {
  const auto refusal_of = [](const std::function<at::Tensor(const at::Tensor&)>& function) {
    const auto sum = at::zeros({2}, kOptions);
    CapturedStep step(
        kDevice,
        [&](const Tensors& inputs) {
          sum.add_(1);
          return Tensors{function(inputs[0])};
        },
        /*warm_up=*/1);
    for (int i = 0; i < 3; ++i) step({pair_of_floats(1)});
    EXPECT_EQ(first_of(sum), 3);  // as if nothing had been recorded
    EXPECT_EQ(step.replays(), 0);
    return step.refusal();
  };
  EXPECT_THAT(refusal_of([](const at::Tensor& input) { return input * input[0].item<float>(); }),
              HasSubstr("as item() does"));
  EXPECT_THAT(refusal_of([](const at::Tensor& input) { return at::logcumsumexp(input, 0); }),
              HasSubstr("aten::_logcumsumexp"));
  EXPECT_THAT(refusal_of([](const at::Tensor& input) { return input + at::ones({2}).to(kDevice); }),
              HasSubstr("a tensor of the host is copied"));
}

TEST(XlaCapturedStep, SaysOnceThatAStepIsCompiledForAShortBatch) {
  const auto weight = at::ones({16, 16}, kOptions);
  const auto step = [&](std::int64_t rows) {
    auto x = at::ones({rows, 16}, kOptions);
    for (int layer = 0; layer < 30; ++layer) x = at::mm(x, weight).tanh();
    return x.sum().item<float>();
  };
  ::testing::internal::CaptureStderr();
  const auto before = counts().recompiled_for_shapes;
  for (const auto rows : {32, 32, 7, 32, 7, 5}) step(rows);
  EXPECT_EQ(counts().recompiled_for_shapes - before, 2);
  const auto said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("drop_last"));
  EXPECT_EQ(said.find("drop_last"), said.rfind("drop_last"));
}

}  // namespace
}  // namespace lockstep::xla
