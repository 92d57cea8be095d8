// The kernels of src/cuda, compiled for CPUs (host_cuda): their numbers are those of the CPU's own kernels.
// That they run on a GPU is for gpu_case to say.
#include "cuda/kernels.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <lockstep/comm/reduce_op.h>
#include <lockstep/device/cross_entropy.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/torch.h>

#include "comm/collectives/device_collectives.h"
#include "parallel/sharded/block_quantizer.h"

namespace lockstep::detail {
namespace {

std::vector<float> random_numbers(std::int64_t count, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::normal_distribution<float> normal;
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (auto& number : numbers) number = normal(random) * std::exp(5 * normal(random));
  return numbers;
}

struct Quantized {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;

  Quantized(std::int64_t elements, CodeBits bits)
      : codes(static_cast<std::size_t>(code_bytes(elements, bits))),
        scales(static_cast<std::size_t>(block_count(elements))) {}
};

TEST(CudaKernels, QuantizeToTheBitsOfTheCpu) {
  for (const auto bits : {CodeBits::k8, CodeBits::k4}) {
    for (const std::int64_t elements : {1, 255, 256, 257, 2048, 5000}) {
      const auto values = random_numbers(elements, static_cast<int>(elements));
      Quantized expected(elements, bits), got(elements, bits);
      quantize(values.data(), elements, bits, expected.codes.data(), expected.scales.data());
      ASSERT_EQ(cuda_quantize({.values = values.data(),
                               .elements = elements,
                               .codes = got.codes.data(),
                               .scales = got.scales.data(),
                               .bits = static_cast<int>(bits)},
                              nullptr),
                0);
      EXPECT_EQ(got.codes, expected.codes) << elements;
      EXPECT_EQ(got.scales, expected.scales) << elements;

      for (const bool adds : {false, true}) {
        auto of_cpu = random_numbers(elements, 7), of_kernel = of_cpu;
        (adds ? add_dequantized : dequantize)(got.codes.data(), got.scales.data(), elements, bits,
                                              of_cpu.data(), best_isa());
        cuda_dequantize({.codes = got.codes.data(),
                         .scales = got.scales.data(),
                         .elements = elements,
                         .values = of_kernel.data(),
                         .bits = static_cast<int>(bits),
                         .adds = adds},
                        nullptr);
        EXPECT_EQ(of_kernel, of_cpu) << elements << (adds ? " added" : "");
      }
    }
  }
}

TEST(CudaKernels, QuantizeWhatIsNotFiniteAndWhatIsTiny) {
  std::vector<float> values(4 * 256, 1.0F);
  values[3] = std::numeric_limits<float>::infinity();
  values[256 + 200] = std::numeric_limits<float>::quiet_NaN();
  for (std::size_t i = 512; i < 768; ++i) values[i] = 1e-37F;
  Quantized got(1024, CodeBits::k8);
  cuda_quantize(
      {.values = values.data(), .elements = 1024, .codes = got.codes.data(), .scales = got.scales.data()},
      nullptr);
  EXPECT_TRUE(std::isnan(got.scales[0]) && std::isnan(got.scales[1]));
  EXPECT_EQ(got.scales[2], 0.0F);
  EXPECT_EQ(got.scales[3], 1.0F / 127);
  EXPECT_EQ(got.codes[512], 0);
  EXPECT_EQ(got.codes[1023], 127);
  EXPECT_NE(cuda_quantize({.elements = 1, .bits = 5}, nullptr), 0);
}

TEST(CudaKernels, CopyInScalesCastsAndAdds) {
  const auto scale = 0.25;
  for (const bool adds : {false, true}) {
    std::vector<at::Tensor> from, to, expected;
    std::vector<CudaCopy> copies;
    for (std::int64_t i = 0; i < 60; ++i) {
      from.push_back(torch::randn({i * 37}).to(at::kBFloat16));
      to.push_back(torch::randn({i * 37}));
      expected.push_back(from.back().to(at::kFloat) * scale);
      if (adds) expected.back() += to.back();
      copies.push_back({from.back().const_data_ptr(), to.back().mutable_data_ptr(), i * 37});
    }
    ASSERT_EQ(cuda_copy_scaled({.copies = copies.data(),
                                .count = 60,
                                .from_type = CudaType::kBFloat16,
                                .to_type = CudaType::kFloat32,
                                .scale = &scale,
                                .adds = adds},
                               nullptr),
              0);
    for (std::size_t i = 0; i < to.size(); ++i) EXPECT_TRUE(at::equal(to[i], expected[i])) << i;
  }
}

TEST(CudaKernels, SumRowsInTheTreeOfTheCpu) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto type = dtype == at::kFloat ? CudaType::kFloat32 : CudaType::kBFloat16;
    for (const int count : {1, 2, 3, 5, 8, 13, 64}) {
      const auto rows = torch::randn({count, 1001}).to(dtype);
      auto got = at::empty({1001}, rows.options());
      cuda_sum_rows({.rows = rows.const_data_ptr(),
                     .output = got.mutable_data_ptr(),
                     .size = 1001,
                     .row_count = count,
                     .type = type,
                     .is_average = true},
                    nullptr);
      EXPECT_TRUE(at::equal(got, reduced_rows(rows, ReduceOp::kAvg))) << count;
    }
  }
}

TEST(CudaKernels, StepOfAdamHasTheBitsOfTheCpu) {
  auto parameter = torch::randn({5000}).set_requires_grad(true);
  parameter.mutable_grad() = torch::randn({5000});
  auto value = parameter.detach().clone(), average = at::zeros({5000}), squares = at::zeros({5000});
  auto copy = at::zeros({5000}, at::kBFloat16);
  const std::vector<NamedParameter> parameters{{"p", parameter}};
  const auto optimizer = OptimizerFactory(AdamW{.lr = 1e-2}).create(parameters);
  const double scale = 0.37;
  for (float step = 1; step <= 3; ++step) {
    optimizer->step(scale);
    const CudaAdamTensor tensor{.param = value.mutable_data_ptr(),
                                .gradient = parameter.grad().const_data_ptr(),
                                .exp_avg = average.mutable_data_ptr(),
                                .exp_avg_sq = squares.mutable_data_ptr(),
                                .copy = copy.mutable_data_ptr(),
                                .step = &step,
                                .size = 5000};
    const AdamW settings;
    ASSERT_EQ(cuda_adam_step({.tensors = &tensor,
                              .count = 1,
                              .grad_scale = &scale,
                              .lr = 1e-2,
                              .beta1 = settings.betas[0],
                              .beta2 = settings.betas[1],
                              .eps = settings.eps,
                              .weight_decay = settings.weight_decay},
                             nullptr),
              0);
  }
  EXPECT_TRUE(at::equal(value, parameter.detach()));
  EXPECT_TRUE(at::equal(copy, value.to(at::kBFloat16)));
}

struct Entropy {
  at::Tensor loss, gradient;
};

// Both kernels, with a gradient of the mean.
Entropy by_kernels(const at::Tensor& scores, const at::Tensor& targets, CudaType type) {
  const auto rows = scores.size(0);
  auto losses = at::empty({rows}), log_sums = at::empty({rows});
  auto gradient = at::empty_like(scores);
  const auto count = targets.ne(-100).sum().item<std::int64_t>();
  const float scale = 1.0F / static_cast<float>(count);
  const CudaCrossEntropy forward{.scores = scores.const_data_ptr(),
                                 .type = type,
                                 .targets = targets.const_data_ptr<std::int64_t>(),
                                 .rows = rows,
                                 .classes = scores.size(1),
                                 .losses = losses.mutable_data_ptr<float>(),
                                 .log_sums = log_sums.mutable_data_ptr<float>()};
  EXPECT_EQ(cuda_cross_entropy(forward, nullptr), 0);
  EXPECT_EQ(cuda_cross_entropy_gradient(
                {.forward = forward, .scale = &scale, .gradient = gradient.mutable_data_ptr()}, nullptr),
            0);
  return {losses.sum() / count, gradient};
}

TEST(CudaKernels, CrossEntropyIsThatOfLibTorch) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto type = dtype == at::kFloat      ? CudaType::kFloat32
                      : dtype == at::kBFloat16 ? CudaType::kBFloat16
                                               : CudaType::kFloat16;
    for (const std::int64_t classes : {1, 3, 512, 2000}) {
      auto scores = (torch::randn({5, classes}) * 8).to(dtype);
      if (classes == 2000) scores.select(0, 4).narrow(0, 0, 1900).fill_(-INFINITY);
      auto targets = at::randint(classes, {5}, at::kLong);
      targets[4] = classes - 1;
      targets[1] = -100;
      auto in_double = scores.to(at::kDouble).set_requires_grad(true);
      const auto expected = at::cross_entropy_loss(in_double, targets);
      expected.backward();
      const auto got = by_kernels(scores, targets, type);
      EXPECT_TRUE(at::allclose(got.loss.to(at::kDouble), expected, 1e-6, 1e-6))
          << classes << got.loss << expected;
      // Exponents of scores up to 40 are rounded to 4e-6, and so are probabilities near 1, of which a
      // gradient is the distance from 1, divided by four targets.
      const auto relative = dtype == at::kFloat ? 1e-5 : 1e-2;
      EXPECT_TRUE(at::allclose(got.gradient.to(at::kDouble), in_double.grad(), relative, 1e-6)) << classes;
    }
  }
}

TEST(CrossEntropy, IsLibTorchsOnCpus) {
  auto scores = torch::randn({6, 11}).set_requires_grad(true);
  auto targets = at::randint(11, {6}, at::kLong);
  targets[2] = 3;
  for (const std::int64_t ignored : {-100, 3}) {
    const auto expected = at::cross_entropy_loss(scores, targets, {}, at::Reduction::Mean, ignored);
    const auto got = cross_entropy(scores, targets, ignored);
    EXPECT_TRUE(at::equal(got, expected));
    const auto gradient = torch::autograd::grad({got}, {scores})[0];
    EXPECT_TRUE(at::equal(gradient, torch::autograd::grad({expected}, {scores})[0]));
  }
}

TEST(CudaKernels, AGradientMayTakeThePlaceOfItsScores) {
  auto scores = torch::randn({2, 700});
  const auto targets = at::zeros({2}, at::kLong);
  const auto expected = by_kernels(scores, targets, CudaType::kFloat32).gradient;
  auto losses = at::empty({2}), log_sums = at::empty({2});
  const CudaCrossEntropy forward{.scores = scores.const_data_ptr(),
                                 .targets = targets.const_data_ptr<std::int64_t>(),
                                 .rows = 2,
                                 .classes = 700,
                                 .losses = losses.mutable_data_ptr<float>(),
                                 .log_sums = log_sums.mutable_data_ptr<float>()};
  const float scale = 0.5F;
  cuda_cross_entropy(forward, nullptr);
  cuda_cross_entropy_gradient({.forward = forward, .scale = &scale, .gradient = scores.mutable_data_ptr()},
                              nullptr);
  EXPECT_TRUE(at::equal(scores, expected));
}

}  // namespace
}  // namespace lockstep::detail
