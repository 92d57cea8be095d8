#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/optim/grad_norm.h>
#include <lockstep/torch.h>

#include <cmath>
#include <limits>

#include "optim/support.h"

namespace lockstep {
namespace {

using optim_test::error_of;
using optim_test::Model;

Model with_gradients() {
  torch::manual_seed(11);
  Model parameters;
  for (const std::int64_t size : {1, 1000, 1024, 70001}) {
    parameters.push_back(torch::zeros({size}));
    parameters.back().mutable_grad() = torch::randn({size});
  }
  parameters.push_back(torch::zeros({3}));  // without a gradient
  return parameters;
}

TEST(GradNorm, IsTorchsClipping) {
  for (const double max_norm : {1.0, 1e6}) {
    auto mine = with_gradients(), theirs = with_gradients();
    const auto norm = clip_grad_norm(mine, max_norm);
    EXPECT_NEAR(norm, torch::nn::utils::clip_grad_norm_(theirs, max_norm), 1e-5 * norm);
    for (std::size_t i = 0; i + 1 < mine.size(); ++i)
      EXPECT_TRUE(torch::allclose(mine[i].grad(), theirs[i].grad()));
    EXPECT_FALSE(mine.back().grad().defined());
    EXPECT_NEAR(grad_norm(mine), std::min(norm, max_norm), 1e-4);
  }
}

TEST(GradNorm, TakesOtherNormsAsTorchDoes) {
  for (const double p : {1.0, 3.0, std::numeric_limits<double>::infinity()}) {
    auto mine = with_gradients(), theirs = with_gradients();
    const auto norm = clip_grad_norm(mine, 0.5, p);
    EXPECT_NEAR(norm, torch::nn::utils::clip_grad_norm_(theirs, 0.5, p), 1e-5 * norm);
    for (std::size_t i = 0; i + 1 < mine.size(); ++i)
      EXPECT_TRUE(torch::allclose(mine[i].grad(), theirs[i].grad(), 1e-4));
  }
  EXPECT_EQ(grad_norm(Model{torch::zeros({3})}, 1.0), 0.0);
  EXPECT_NE(error_of<ConfigError>([] { grad_norm(with_gradients(), 0.0); }).find("norm_type"),
            std::string::npos);
}

// Of no elements, of no dimension, complex, of several types, and not in a row.
Model with_odd_gradients() {
  torch::manual_seed(12);
  Model parameters;
  const auto add = [&](const at::Tensor& gradient) {
    parameters.push_back(torch::zeros_like(gradient));
    parameters.back().mutable_grad() = gradient;
  };
  add(torch::empty({0, 3}));
  add(torch::randn({}));
  add(torch::randn({4, 2}, at::kComplexFloat));
  add(torch::randn({3}, at::kComplexDouble).conj());
  add(torch::randn({5, 3}, at::kDouble).t());
  add(torch::randn({7}).to(at::kHalf));
  add(torch::randn({7}).to(at::kBFloat16));
  add(torch::randn({12}).slice(0, 0, 12, 3));
  return parameters;
}

TEST(GradNorm, HasEveryTypeOverOddGradients) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double p : {0.5, 1.0, 2.0, 3.0, infinity}) {
    const auto parameters = with_odd_gradients();
    std::vector<at::Tensor> sizes;
    for (const auto& parameter : parameters)
      sizes.push_back(parameter.grad().resolve_conj().abs().to(at::kDouble).reshape({-1}));
    const auto all = at::cat(sizes);
    const auto expected =
        p == infinity ? all.max().item<double>() : std::pow(all.pow(p).sum().item<double>(), 1 / p);
    EXPECT_NEAR(clip_grad_norm(parameters, 0.5, p), expected, 1e-6 * expected) << p;
    EXPECT_NEAR(grad_norm(parameters, p), 0.5, 5e-3) << p;
  }
  EXPECT_EQ(grad_norm(Model{with_odd_gradients()[0]}, infinity), 0.0);
  EXPECT_EQ(error_of<ConfigError>([] { clip_grad_value(with_odd_gradients(), 1); }),
            "[optim] values of a gradient cannot be clipped; expected real numbers, which have an order; got "
            "ComplexFloat");
}

TEST(GradNorm, RefusesAnInfiniteNormBeforeItChangesAnything) {
  auto parameters = with_gradients();
  parameters[0].grad().fill_(std::numeric_limits<float>::infinity());
  const auto before = parameters[1].grad().clone();
  EXPECT_THROW(clip_grad_norm(parameters, 1.0, 2.0, /*error_if_nonfinite=*/true), Error);
  EXPECT_TRUE(torch::equal(parameters[1].grad(), before));
}

TEST(GradNorm, IsExactInFloat64) {
  const auto parameters = with_gradients();
  double sum = 0.0;
  for (std::size_t i = 0; i < 4; ++i)
    sum += parameters[i].grad().to(at::kDouble).square().sum().item<double>();
  EXPECT_NEAR(grad_norm(parameters), std::sqrt(sum), 1e-12 * std::sqrt(sum));
}

TEST(GradNorm, DoesNotDependOnThreadsOrOnCuts) {
  const auto parameters = with_gradients();
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const auto norm = grad_norm(parameters);
  at::set_num_threads(2);
  EXPECT_EQ(grad_norm(parameters), norm);
  at::set_num_threads(before);
  std::vector<double> pieces;
  for (std::size_t i = 0; i < 4; ++i) {
    for (const auto& piece : parameters[i].grad().split(3 * kGradNormBlock)) {
      for (const auto sum : block_square_sums(piece)) pieces.push_back(sum);
    }
  }
  EXPECT_EQ(std::sqrt(pairwise_sum(pieces)), norm);
}

TEST(GradNorm, AddsByPairs) {
  const double big = 9007199254740992.0;  // 2^53: big + 1 is lost
  EXPECT_EQ(pairwise_sum(std::vector<double>{}), 0.0);
  EXPECT_EQ(pairwise_sum(std::vector<double>{1, 2, 3}), 6.0);
  EXPECT_EQ(pairwise_sum(std::vector<double>{big, 0, 1, 1}), big + 2.0);
  EXPECT_EQ(pairwise_sum(std::vector<double>{big, 1, 1, 0, 0}), big);
}

TEST(GradNorm, ReadsLowPrecisionAndStridedGradients) {
  auto parameter = torch::zeros({4, 6}).to(at::kBFloat16);
  parameter.mutable_grad() = torch::randn({6, 4}).to(at::kBFloat16).t();
  const auto expected = parameter.grad().to(at::kDouble).norm().item<double>();
  EXPECT_NEAR(grad_norm(Model{parameter}), expected, 1e-12);
}

TEST(GradNorm, TreatsNonFiniteNormsAsTorch) {
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    auto mine = with_gradients(), theirs = with_gradients();
    for (auto* model : {&mine, &theirs}) (*model)[1].grad()[5] = bad;
    EXPECT_EQ(std::isnan(clip_grad_norm(mine, 1.0)), std::isnan(bad));
    torch::nn::utils::clip_grad_norm_(theirs, 1.0);
    EXPECT_TRUE(torch::allclose(mine[1].grad(), theirs[1].grad(), 0, 0, /*equal_nan=*/true));
    EXPECT_TRUE(torch::allclose(mine[3].grad(), theirs[3].grad(), 0, 0, /*equal_nan=*/true));
  }
}

TEST(ClipGradValue, ClampsEveryElement) {
  auto parameters = with_gradients();
  const auto before = parameters[3].grad().clone();
  clip_grad_value(parameters, 0.5);
  EXPECT_TRUE(torch::equal(parameters[3].grad(), before.clamp(-0.5, 0.5)));
}

TEST(GradNorm, RefusesWhatItCannotClip) {
  auto parameters = with_gradients();
  EXPECT_EQ(error_of<ConfigError>([&] { clip_grad_norm(parameters, -1.0); }),
            "[optim] max_norm is out of range; expected a number >= 0; got -1");
  EXPECT_EQ(error_of<ConfigError>([&] { clip_grad_value(parameters, std::nan("")); }),
            "[optim] limit is out of range; expected a number >= 0; got nan");
  auto sparse = torch::zeros({3, 2});
  sparse.mutable_grad() = torch::ones({3, 2}).to_sparse();
  EXPECT_EQ(error_of<ConfigError>([&] { grad_norm(Model{sparse}); }),
            "[optim] a gradient cannot be clipped; expected dense tensors; got Sparse");
}

}  // namespace
}  // namespace lockstep
