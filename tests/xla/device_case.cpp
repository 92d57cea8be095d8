#include "xla/device_case.h"

#include <algorithm>

#include <gmock/gmock.h>

#include <torch/torch.h>

#include "xla/device.h"
#include "xla/test_client.h"

namespace lockstep::test {
namespace {

// LibTorch has to know the device before its first backward pass.
class InstalledDevice : public ::testing::Environment {
 public:
  void SetUp() override { xla::install(test_client(), std::nullopt); }
};
const auto* const installed = ::testing::AddGlobalTestEnvironment(new InstalledDevice);

// What the gradients are of has another weight in each element of the result.
at::Tensor gradients_of(const Function& function, const Tensors& inputs) {
  Tensors all;
  for (const auto& input : inputs) {
    all.push_back(input.detach().clone());
    if (at::isFloatingType(input.scalar_type())) all.back().requires_grad_();
  }
  const auto result = function(all);
  const auto weights = at::linspace(0.5, 1.5, result.numel(), at::kFloat).view(result.sizes());
  (result * weights.to(result.device(), result.scalar_type())).sum().backward();
  Tensors gradients;
  for (const auto& input : all)
    if (input.grad().defined()) gradients.push_back(input.grad().flatten());
  return at::cat(gradients);
}

}  // namespace

Tensors on_device(const Tensors& tensors) {
  Tensors moved;
  for (const auto& tensor : tensors) moved.push_back(tensor.to(kDevice));
  return moved;
}

void expect_close(const at::Tensor& got, const at::Tensor& expected, const std::string& what) {
  ASSERT_EQ(got.sizes(), expected.sizes()) << what;
  ASSERT_EQ(got.scalar_type(), expected.scalar_type()) << what;
  const auto wanted = expected.to(at::kDouble);
  // Small elements of sums of large ones have the error of these.
  const auto largest = wanted.numel() > 0 ? wanted.nan_to_num(0, 0, 0).abs().max().item<double>() : 0.0;
  const double absolute = 1e-6 * std::max(1.0, largest);
  EXPECT_TRUE(at::allclose(got.to(at::kDouble), wanted, 1e-5, absolute, /*equal_nan=*/true)) << what << "\n"
                                                                                             << got << "\n"
                                                                                             << expected;
}

std::int64_t fallbacks() {
  std::int64_t calls = 0;
  for (const auto& [name, count] : xla::counts().on_cpu) calls += count;
  return calls;
}

at::Tensor normal(at::IntArrayRef sizes) { return at::randn(sizes); }
at::Tensor classes(std::int64_t count, std::int64_t most) { return at::randint(most, {count}); }

void expect_as_on_cpu(const Case& tested) {
  const auto expected = tested.function(tested.inputs);
  const auto before = xla::counts().on_cpu;
  const auto inputs = on_device(tested.inputs);
  const auto got = tested.function(inputs);
  ASSERT_EQ(got.device(), kDevice) << tested.name;
  expect_close(got.cpu(), expected, tested.name);
  EXPECT_EQ(xla::counts().on_cpu, before) << tested.name;
}

void expect_gradients_as_on_cpu(const Case& tested) {
  expect_as_on_cpu({"gradients: " + tested.name, tested.inputs,
                    [&](const Tensors& t) { return gradients_of(tested.function, t); }});
}

}  // namespace lockstep::test
