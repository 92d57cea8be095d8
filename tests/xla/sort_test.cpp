// Arrays in the order of their elements, and elements that are put at positions, beside the same on the CPU.
#include <limits>

#include <gmock/gmock.h>

#include <torch/torch.h>

#include "xla/device_case.h"

namespace lockstep::xla {
namespace {

using namespace test;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::Tensor sorted(const at::Tensor& tensor, std::int64_t dimension, bool is_descending) {
  return std::get<0>(tensor.sort(dimension, is_descending));
}

at::Tensor positions(const at::Tensor& tensor, std::int64_t dimension, bool is_descending) {
  return std::get<1>(at::sort(tensor, /*stable=*/true, dimension, is_descending));
}

TEST(XlaSort, PutsElementsInTheOrderOfTheCpu) {
  at::manual_seed(41);
  const auto cube = normal({3, 4, 5});
  for (const bool is_descending : {false, true})
    for (const std::int64_t dimension : {0, 1, -1}) {
      const auto name = "dimension " + std::to_string(dimension) + (is_descending ? " descending" : "");
      const Case tested{
          name, {cube}, [=](const Tensors& t) { return sorted(t[0], dimension, is_descending); }};
      expect_as_on_cpu(tested);
      expect_gradients_as_on_cpu(tested);
      expect_as_on_cpu({"positions, " + name, {cube}, [=](const Tensors& t) {
                          return positions(t[0], dimension, is_descending);
                        }});
    }
  expect_as_on_cpu({"argsort", {cube}, [](const Tensors& t) { return t[0].argsort(std::int64_t{1}); }});
  expect_as_on_cpu({"msort", {cube}, [](const Tensors& t) { return t[0].msort(); }});
}

TEST(XlaSort, KeepsEqualElementsInTheirOrder) {
  const auto numbers = at::tensor({3, 1, 3, 2, 1, 3, 2}, at::kLong);
  const auto truths = at::tensor({1, 0, 1, 0, 0}, at::kLong).to(at::kBool);
  const auto halves = at::tensor({2.0, 1.0, 2.0, -1.0, 1.0}).to(at::kBFloat16);
  for (const bool is_descending : {false, true})
    for (const auto& tensor : {numbers, truths, halves})
      expect_as_on_cpu({c10::toString(tensor.scalar_type()), {tensor}, [=](const Tensors& t) {
                          return positions(t[0], 0, is_descending);
                        }});
}

// They are larger than infinity, as LibTorch takes them.
TEST(XlaSort, TakesWhatIsNoNumberForTheLargest) {
  const auto tensor = at::tensor({1.0, kNan, -kInfinity, 0.5, kInfinity, kNan, -2.0});
  for (const bool is_descending : {false, true})
    expect_as_on_cpu(
        {"positions", {tensor}, [=](const Tensors& t) { return positions(t[0], 0, is_descending); }});
}

TEST(XlaSort, FindsTheLargestAndTheSmallest) {
  at::manual_seed(42);
  const auto matrix = normal({4, 6});
  for (const bool is_largest : {false, true})
    for (const std::int64_t dimension : {0, 1}) {
      const auto largest = [=](const Tensors& t) { return std::get<0>(t[0].topk(3, dimension, is_largest)); };
      expect_as_on_cpu({"topk", {matrix}, largest});
      expect_gradients_as_on_cpu({"topk", {matrix}, largest});
      expect_as_on_cpu({"positions of topk", {matrix}, [=](const Tensors& t) {
                          return std::get<1>(t[0].topk(3, dimension, is_largest));
                        }});
    }
}

TEST(XlaScatter, PutsElementsAndNumbersWhereIndicesSay) {
  at::manual_seed(43);
  const auto matrix = normal({3, 5}), values = normal({2, 5});
  const auto rows = at::tensor({2, 0, 1, 2, 0, 0, 1, 2, 0, 2}, at::kLong).view({2, 5});
  const Case elements{
      "elements", {matrix, values, rows}, [](const Tensors& t) { return t[0].scatter(0, t[2], t[1]); }};
  expect_as_on_cpu(elements);
  expect_as_on_cpu({"a number", {matrix, rows}, [](const Tensors& t) { return t[0].scatter(0, t[1], 7.0); }});
  expect_as_on_cpu(
      {"in place", {matrix, rows}, [](const Tensors& t) { return t[0].clone().scatter_(0, t[1], -1); }});
}

}  // namespace
}  // namespace lockstep::xla
