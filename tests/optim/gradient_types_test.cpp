// Optimizers take gradients of other types than the parameters', without a copy of them.
#include <gtest/gtest.h>
#include <lockstep/optim/grad_norm.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/torch.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "optim/kernels.h"
#include "optim/support.h"

namespace lockstep {
namespace {

using optim_test::parameters_of;

constexpr at::ScalarType kGradientTypes[] = {at::kBFloat16, at::kHalf, at::kFloat, at::kDouble};

std::vector<OptimizerFactory> optimizers() {
  return {AdamW{.lr = 3e-3},
          Adam{.lr = 3e-3, .weight_decay = 0.1},
          SGD{.lr = 0.05, .weight_decay = 0.1},
          SGD{.lr = 0.05, .momentum = 0.9, .nesterov = true},
          Adagrad{.weight_decay = 0.1},
          Lion{.lr = 0.05, .weight_decay = 0.1},
          Lamb{.lr = 0.05, .weight_decay = 0.1},
          Muon{.lr = 0.05}};
}

// Of lengths that fill no vector, a run and some, and several chunks; the last one does not lie row by row.
optim_test::Model odd_parameters(at::ScalarType dtype) {
  torch::manual_seed(5);
  optim_test::Model model;
  for (const std::int64_t size : {1, 7, 1024, 1031, 70001}) model.push_back(torch::randn({size}).to(dtype));
  model.push_back(torch::randn({24, 31}).to(dtype).t());
  return model;
}

// Parameters after three steps on gradients of `gradients`, which are `widened` before, or not.
optim_test::Model after_steps_on(const OptimizerFactory& factory, at::ScalarType dtype,
                                 at::ScalarType gradients, std::optional<at::ScalarType> widened) {
  auto model = odd_parameters(dtype);
  const auto optimizer = factory.create(parameters_of(model));
  for (int step = 0; step < 3; ++step) {
    torch::manual_seed(50 + static_cast<std::uint64_t>(step));
    for (auto& parameter : model) {
      const auto gradient = torch::randn(parameter.sizes(), at::kDouble).to(gradients);
      parameter.mutable_grad() = widened ? gradient.to(*widened) : gradient;
    }
    optimizer->step(0.7);
  }
  return model;
}

TEST(GradientTypes, GiveTheBitsOfGradientsThatWereConvertedBefore) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const auto arithmetic = dtype == at::kDouble ? at::kDouble : at::kFloat;
    for (const auto gradients : kGradientTypes) {
      for (const auto& factory : optimizers()) {
        const auto expected = after_steps_on(factory, dtype, gradients, arithmetic);
        const auto found = after_steps_on(factory, dtype, gradients, std::nullopt);
        for (std::size_t i = 0; i < found.size(); ++i) {
          EXPECT_TRUE(torch::equal(found[i], expected[i]))
              << gradients << " for " << dtype << ", tensor " << i << ", "
              << factory.create({{"p", torch::ones({1})}})->name();
        }
      }
    }
  }
}

// A step of length 1 from 0 along minus the gradient leaves the gradient.
template <class T>
void expect_every_number(at::ScalarType dtype, detail::GradientType type) {
  const auto bits = torch::arange(65536, at::kInt).to(at::kShort);
  const auto expected = bits.view(dtype).to(c10::CppTypeToScalarType<T>::value);
  const auto usual = bits.view(dtype).to(at::kFloat).isfinite();
  for (const auto isa : {detail::Isa::kBaseline, detail::Isa::kAvx2, detail::Isa::kAvx512}) {
    if (isa > detail::best_isa()) continue;
    const torch::Tensor found = torch::zeros({65536}, expected.options());
    const detail::SgdSegment<T> segment{
        found.data_ptr<T>(), {bits.const_data_ptr(), type}, nullptr, 65536, {.lr = -1.0}};
    detail::update(segment, 0, 65536, isa);
    EXPECT_TRUE(torch::allclose(found, expected, 0, 0, /*equal_nan=*/true)) << dtype;
    EXPECT_TRUE(found.masked_select(usual).equal(expected.masked_select(usual))) << dtype;
  }
}

TEST(GradientTypes, EveryNumberOf16BitsIsReadAsItIs) {
  expect_every_number<float>(at::kBFloat16, detail::GradientType::kBFloat16);
  expect_every_number<double>(at::kBFloat16, detail::GradientType::kBFloat16);
  expect_every_number<float>(at::kHalf, detail::GradientType::kFloat16);
  expect_every_number<double>(at::kHalf, detail::GradientType::kFloat16);
}

class LargestAllocation final : public c10::MemoryReportingInfoBase {
 public:
  std::int64_t bytes = 0;
  void reportMemoryUsage(void*, std::int64_t change, std::size_t, std::size_t, c10::Device) override {
    bytes = std::max(bytes, change);
  }
  bool memoryProfilingEnabled() const override { return true; }
};

TEST(GradientTypes, AreNotCopied) {
  constexpr std::int64_t kElements = 1 << 20;
  for (const auto gradients : kGradientTypes) {
    for (const auto& factory : optimizers()) {
      auto parameter = torch::ones({kElements});
      const auto optimizer = factory.create({{"p", parameter}});
      parameter.mutable_grad() = torch::ones({kElements}, gradients);
      optimizer->step();  // makes the state
      const auto memory = std::make_shared<LargestAllocation>();
      const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, memory);
      EXPECT_GT(grad_norm(std::vector{parameter}), 1000);
      optimizer->step();
      EXPECT_LT(memory->bytes, kElements) << gradients << " by " << optimizer->name();
    }
  }
}

TEST(GradientTypes, HaveTheNormOfWhatTheyAre) {
  torch::manual_seed(8);
  for (const std::int64_t size : {1, 1000, 1024, 70001}) {
    for (const auto dtype : {at::kBFloat16, at::kHalf}) {
      const auto gradient = torch::randn({size}).to(dtype);
      EXPECT_EQ(block_square_sums(gradient), block_square_sums(gradient.to(at::kFloat))) << size;
    }
  }
}

TEST(GradientTypes, OfLbfgsAreThoseOfTheParameters) {
  const auto parameter = torch::full({4}, 2.0F).requires_grad_();
  const auto optimizer = OptimizerFactory(LBFGS{}).create({{"p", parameter}});
  optimizer->step_with([&] {
    parameter.mutable_grad() = (2 * parameter).detach().to(at::kBFloat16);
    return parameter.pow(2).sum().item<double>();
  });
  EXPECT_LT(parameter.abs().max().item<float>(), 0.1);
}

}  // namespace
}  // namespace lockstep
