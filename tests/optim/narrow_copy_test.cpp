// Steps that write parameters in 16 bits as well.
#include <gtest/gtest.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/torch.h>

#include <bit>
#include <limits>
#include <memory>
#include <vector>

#include "optim/kernels.h"
#include "optim/pieces.h"
#include "optim/support.h"

namespace lockstep {
namespace {

using detail::Isa;
using detail::NarrowType;

constexpr at::ScalarType kNarrow[] = {at::kBFloat16, at::kHalf};

// Every sign, exponent and beginning of a mantissa, with what decides how it is rounded behind it.
at::Tensor all_kinds_of_floats() {
  std::vector<float> numbers;
  for (std::uint32_t high = 0; high < 1U << 16; ++high) {
    for (const std::uint32_t low :
         {0x0000U, 0x0001U, 0x0fffU, 0x1000U, 0x1001U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      const auto number = std::bit_cast<float>(high << 16 | low);
      if (number == number) numbers.push_back(number);
    }
  }
  return at::tensor(numbers);
}

TEST(NarrowCopy, RoundsAsTensorsDo) {
  const auto numbers = all_kinds_of_floats();
  for (const auto dtype : kNarrow) {
    const auto type = dtype == at::kHalf ? NarrowType::kFloat16 : NarrowType::kBFloat16;
    for (const auto isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
      if (isa > detail::best_isa()) continue;
      auto copy = at::zeros_like(numbers, dtype);
      detail::narrow(numbers.const_data_ptr<float>(), {copy.data_ptr(), type}, 0, numbers.numel(), isa);
      EXPECT_TRUE(copy.view(at::kShort).equal(numbers.to(dtype).view(at::kShort)));
    }
    float nan = std::numeric_limits<float>::quiet_NaN();
    auto copy = at::zeros({1}, dtype);
    detail::narrow(&nan, {copy.data_ptr(), type}, 0, 1, Isa::kBaseline);
    EXPECT_TRUE(copy.isnan().item<bool>());
  }
}

struct Marked {
  at::Tensor parameter;
  std::shared_ptr<detail::NarrowCopy> copy;
};

Marked marked(at::Tensor parameter, at::ScalarType dtype) {
  parameter.set_requires_grad(true);
  const detail::Piece piece{.elements = parameter,
                            .narrow = std::make_shared<detail::NarrowCopy>(
                                detail::NarrowCopy{at::zeros(parameter.sizes(), dtype)})};
  detail::mark_pieces(std::span(&piece, 1));
  return {parameter, piece.narrow};
}

TEST(NarrowCopy, IsWrittenByAStep) {
  torch::manual_seed(3);
  const std::vector<OptimizerFactory> optimizers{AdamW{}, Adam{}, SGD{.lr = 0.1}, Adagrad{}, Lion{}};
  for (const auto& factory : optimizers) {
    for (const auto dtype : kNarrow) {
      // One thread's work, several threads', and one without a gradient.
      std::vector<Marked> all;
      for (const std::int64_t size : {33, 70001, 5}) all.push_back(marked(torch::randn({size}), dtype));
      optim_test::Model model;
      for (const auto& each : all) model.push_back(each.parameter);
      const auto optimizer = factory.create(optim_test::parameters_of(model));
      for (int step = 0; step < 2; ++step) {
        for (std::size_t i = 0; i < 2; ++i) model[i].mutable_grad() = torch::randn_like(model[i]).to(dtype);
        optimizer->step();
        for (std::size_t i = 0; i < 2; ++i) {
          EXPECT_TRUE(all[i].copy->elements.equal(model[i].to(dtype))) << optimizer->name();
          EXPECT_EQ(all[i].copy->written_of, model[i]._version());
        }
        EXPECT_FALSE(all[2].copy->written_of.has_value());
      }
    }
  }
}

// Who has saved a parameter for backward finds out.
TEST(NarrowCopy, StepsCountAsWrites) {
  auto model = optim_test::model();
  const auto optimizer = OptimizerFactory(AdamW{}).create(optim_test::parameters_of(model));
  model[0].mutable_grad() = torch::ones_like(model[0]);
  optimizer->step();
  EXPECT_EQ(model[0]._version(), 1);
  EXPECT_EQ(model[1]._version(), 0);
}

// What is computed on a copy of the parameter is not there yet when the step ends.
TEST(NarrowCopy, IsLeftAloneWhereTheParameterIsWrittenLater) {
  const auto [parameter, copy] = marked(torch::randn({4, 6}).t(), at::kBFloat16);
  const auto optimizer = OptimizerFactory(AdamW{}).create(optim_test::parameters_of({parameter}));
  parameter.mutable_grad() = torch::ones_like(parameter);
  optimizer->step();
  EXPECT_FALSE(copy->written_of.has_value());
}

}  // namespace
}  // namespace lockstep
