// Networks trained on the device, step by step and by captured steps, beside the same on the CPU.
#include <gmock/gmock.h>

#include <lockstep/device/captured_step.h>

#include "xla/device.h"
#include "xla/device_case.h"
#include "xla/networks.h"

namespace lockstep::xla {
namespace {

using namespace test;

constexpr int kSteps = 50, kWarmUp = 3;

// Learning rates differ from step to step, as schedules make them.
template <class Step>
std::vector<double> losses_of(NetworkTraining& training, const Step& step) {
  std::vector<double> losses;
  for (int i = 0; i < kSteps; ++i) {
    training.optimizer().groups().front().lr = 1e-3 / (1 + i);
    losses.push_back(step(training.batch(i))[0].template item<double>());
  }
  return losses;
}

std::vector<double> losses_on(const std::string& kind, at::Device device) {
  NetworkTraining training(kind, device);
  return losses_of(training, [&](const Tensors& batch) { return training.step(batch); });
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(got[i], expected[i], 1e-5 * expected[i]) << "step " << i;
}

// Nothing runs on the CPU, and after some steps nothing is compiled any more.
void expect_trains_as_on_cpu(const std::string& kind) {
  const auto expected = losses_on(kind, at::kCPU);
  const auto before = counts().on_cpu;
  expect_near(losses_on(kind, kDevice), expected);
  EXPECT_EQ(counts().on_cpu, before);
  const auto compiled = device_programs().counts().compiled;
  losses_on(kind, kDevice);
  EXPECT_EQ(device_programs().counts().compiled, compiled);
}

TEST(XlaNetworks, MlpTrainsAsOnTheCpu) { expect_trains_as_on_cpu("mlp"); }
TEST(XlaNetworks, ConvnetWithBatchNormTrainsAsOnTheCpu) { expect_trains_as_on_cpu("convnet"); }
TEST(XlaNetworks, TransformerTrainsAsOnTheCpu) { expect_trains_as_on_cpu("transformer"); }

void expect_captured_steps_as_on_cpu(const std::string& kind) {
  const auto expected = losses_on(kind, at::kCPU);
  NetworkTraining training(kind, kDevice);
  CapturedStep step(
      kDevice, [&](const Tensors& batch) { return training.step(batch); }, kWarmUp);
  const auto before = counts().on_cpu;
  std::int64_t compiled = 0, recorded = 0;
  int steps = 0;
  const auto got = losses_of(training, [&](const Tensors& batch) {
    const auto outputs = step(batch);
    if (steps++ == kWarmUp + 2) {
      compiled = device_programs().counts().compiled;
      recorded = counts().operators;
    }
    return outputs;
  });
  expect_near(got, expected);
  EXPECT_EQ(step.refusal(), "");
  EXPECT_EQ(step.replays(), kSteps - kWarmUp);
  EXPECT_EQ(device_programs().counts().compiled, compiled);
  EXPECT_EQ(counts().on_cpu, before);
  // Copies of batches and of learning rates are recorded, and nothing of the step.
  EXPECT_LE(counts().operators - recorded, 8 * kSteps);
}

TEST(XlaNetworks, CapturedStepsOfAnMlpAreThoseOfTheCpu) { expect_captured_steps_as_on_cpu("mlp"); }
TEST(XlaNetworks, CapturedStepsOfAConvnetAreThoseOfTheCpu) { expect_captured_steps_as_on_cpu("convnet"); }
TEST(XlaNetworks, CapturedStepsOfATransformerAreThoseOfTheCpu) {
  expect_captured_steps_as_on_cpu("transformer");
}

}  // namespace
}  // namespace lockstep::xla
