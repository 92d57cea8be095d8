// Optimizers whose steps look at whole parameters, on the device, beside the same on the CPU.
#include <gmock/gmock.h>

#include <torch/torch.h>

#include <lockstep/device/captured_step.h>
#include <lockstep/optim/optimizer_factory.h>

#include "xla/device.h"
#include "xla/device_case.h"

namespace lockstep::xla {
namespace {

using namespace test;

constexpr int kUpdates = 8;

// Of more than one block of 1,024 elements, of less, and of zeros alone.
Tensors parameters_on(at::Device device) {
  at::manual_seed(31);
  Tensors parameters{normal({40, 30}), normal({30}), normal({30, 4}), at::zeros({7})};
  for (auto& parameter : parameters) parameter = parameter.to(device).requires_grad_();
  return parameters;
}

class StepsOf {
 public:
  StepsOf(const OptimizerFactory& factory, at::Device device) : parameters_(parameters_on(device)) {
    const std::vector<std::string> names{"hidden", "bias", "last", "zeros"};
    std::vector<NamedParameter> named;
    for (std::size_t i = 0; i < parameters_.size(); ++i) named.push_back({names[i], parameters_[i]});
    optimizer_ = factory.create(std::move(named));
  }

  // The learning rate changes, as schedules make it.
  void prepare(int step) { optimizer_->groups().front().lr = 0.02 / (1 + step); }

  void run() {
    for (auto& parameter : parameters_) parameter.mutable_grad() = parameter.detach().sin();
    optimizer_->step();
  }

  Tensors values() const {
    Tensors values;
    for (const auto& parameter : parameters_) values.push_back(parameter.detach().cpu());
    return values;
  }

 private:
  Tensors parameters_;
  std::unique_ptr<Optimizer> optimizer_;
};

Tensors trained(const OptimizerFactory& factory, at::Device device) {
  StepsOf steps(factory, device);
  for (int i = 0; i < kUpdates; ++i) {
    steps.prepare(i);
    steps.run();
  }
  return steps.values();
}

Tensors trained_by_captured_steps(const OptimizerFactory& factory) {
  StepsOf steps(factory, kDevice);
  CapturedStep captured(
      kDevice,
      [&](const Tensors&) {
        steps.run();
        return Tensors{};
      },
      /*warm_up=*/2);
  for (int i = 0; i < kUpdates; ++i) {
    steps.prepare(i);
    captured({});
  }
  EXPECT_EQ(captured.replays(), kUpdates - 2) << captured.refusal();
  return steps.values();
}

void expect_within(const Tensors& got, const Tensors& expected, double tolerance, const std::string& what) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto most = (got[i] - expected[i]).abs().max().item<double>();
    EXPECT_LE(most, tolerance) << what << ", parameter " << i;
  }
}

void expect_steps_as_on_cpu(const OptimizerFactory& factory, double tolerance) {
  const auto expected = trained(factory, at::kCPU);
  const auto before = counts().on_cpu;
  expect_within(trained(factory, kDevice), expected, tolerance, "traced");
  expect_within(trained_by_captured_steps(factory), expected, tolerance, "captured");
  EXPECT_EQ(counts().on_cpu, before);
}

TEST(XlaOptimizers, LambIsThatOfTheCpu) {
  expect_steps_as_on_cpu(OptimizerFactory(Lamb{.lr = 0.02, .weight_decay = 0.01}), 1e-6);
  expect_steps_as_on_cpu(
      OptimizerFactory(Lamb{.lr = 0.02, .bias_correction = false, .eps_inside_sqrt = true}), 1e-6);
}

// Its matrices are made orthogonal in bfloat16, whose sums the devices round in another order.
TEST(XlaOptimizers, MuonIsThatOfTheCpu) {
  expect_steps_as_on_cpu(OptimizerFactory(Muon{.lr = 0.02, .weight_decay = 0.01}), 2e-3);
}

}  // namespace
}  // namespace lockstep::xla
