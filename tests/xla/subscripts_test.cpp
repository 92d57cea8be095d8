// Elements that tensors of indices find and write, and running sums, beside the same on the CPU.
#include <gmock/gmock.h>

#include <torch/torch.h>

#include "xla/device.h"
#include "xla/device_case.h"

namespace lockstep::xla {
namespace {

using namespace test;
using Indices = std::vector<std::optional<at::Tensor>>;

at::Tensor found(const at::Tensor& tensor, const Indices& indices) {
  return at::index(tensor, c10::List<std::optional<at::Tensor>>(indices));
}

at::Tensor with_put(const at::Tensor& tensor, const Indices& indices, const at::Tensor& values, bool adds) {
  return at::index_put(tensor, c10::List<std::optional<at::Tensor>>(indices), values, adds);
}

at::Tensor places(std::initializer_list<std::int64_t> list) { return at::tensor(at::ArrayRef(list)); }

std::vector<Case> found_cases(const at::Tensor& cube) {
  const auto i = places({2, 0, -1, 2}), j = places({1, -3, 0, 1});
  return {
      {"x[i]", {cube, i}, [](const Tensors& t) { return found(t[0], {t[1]}); }},
      {"x[i, j]",
       {cube, i, j},
       [](const Tensors& t) {
         return found(t[0], {t[1], t[2]});
       }},
      {"x[:, i]",
       {cube, i},
       [](const Tensors& t) {
         return found(t[0], {{}, t[1]});
       }},
      {"x[:, i, j]",
       {cube, i, j},
       [](const Tensors& t) {
         return found(t[0], {{}, t[1], t[2]});
       }},
      {"x[i, :, j]",
       {cube, i, j},
       [](const Tensors& t) {
         return found(t[0], {t[1], {}, t[2]});
       }},
      {"x[i, j, i]",
       {cube, i, j},
       [](const Tensors& t) {
         return found(t[0], {t[1], t[2], t[1]});
       }},
      {"x[matrix]", {cube, i.view({2, 2})}, [](const Tensors& t) { return found(t[0], {t[1]}); }},
      {"x[row, column]",
       {cube, i.view({1, 4}), j.slice(0, 0, 3).view({3, 1})},
       [](const Tensors& t) {
         return found(t[0], {t[1], t[2]});
       }},
      {"x[i] of int32", {cube, i.to(at::kInt)}, [](const Tensors& t) { return found(t[0], {t[1]}); }},
      {"x[number]", {cube, places({1}).sum()}, [](const Tensors& t) { return found(t[0], {t[1]}); }},
      {"x.t()[i]", {cube, i}, [](const Tensors& t) { return found(t[0].transpose(0, 2), {t[1]}); }},
  };
}

// What a mask finds has a size that only the device knows, so the same is put everywhere.
TEST(XlaSubscripts, MasksPutTheSameValuesWhereTheySay) {
  at::manual_seed(22);
  const auto cube = normal({3, 4, 5});
  const auto whole = cube > 0.3, rows = whole.select(2, 0), first = rows.select(1, 0), last = whole[0][0];
  for (const bool adds : {false, true}) {
    const Case cases[]{
        {"x[mask] = number",
         {cube, whole, normal({1}).sum()},
         [=](const Tensors& t) { return with_put(t[0], {t[1]}, t[2], adds); }},
        {"x[mask] = [1]",
         {cube, whole, normal({1})},
         [=](const Tensors& t) { return with_put(t[0], {t[1]}, t[2], adds); }},
        {"x[mask of rows] = row",
         {cube, rows, normal({5})},
         [=](const Tensors& t) { return with_put(t[0], {t[1]}, t[2], adds); }},
        {"x[mask of matrices] = [1, row]",
         {cube, first, normal({1, 4, 5})},
         [=](const Tensors& t) { return with_put(t[0], {t[1]}, t[2], adds); }},
        {"x[:, :, mask] = [4, 1]",
         {cube, last, normal({4, 1})},
         [=](const Tensors& t) {
           return with_put(t[0], {{}, {}, t[1]}, t[2], adds);
         }},
        {"x[:, mask] = row",
         {cube, whole[0], normal({1})},
         [=](const Tensors& t) {
           return with_put(t[0], {{}, t[1]}, t[2], adds);
         }},
    };
    for (const auto& tested : cases) expect_as_on_cpu(tested);
  }
}

TEST(XlaSubscripts, FindWhatTheyDoOnTheCpu) {
  at::manual_seed(21);
  for (const auto& tested : found_cases(normal({3, 4, 5}))) {
    expect_as_on_cpu(tested);
    expect_gradients_as_on_cpu(tested);
  }
  for (const auto& tested : found_cases(classes(60, 9).view({3, 4, 5}))) expect_as_on_cpu(tested);
  for (const auto& tested : found_cases(normal({3, 4, 5}).to(at::kBFloat16))) expect_as_on_cpu(tested);
}

std::vector<Case> written_cases(const at::Tensor& matrix, bool adds) {
  const auto i = places({2, 0, -1}), j = places({1, -3, 0});
  const auto put = [adds](const at::Tensor& tensor, const Indices& indices, const at::Tensor& values) {
    return with_put(tensor, indices, values, adds);
  };
  return {{"x[i] = rows",
           {matrix, i, matrix.slice(0, 0, 3) * 2},
           [=](const Tensors& t) { return put(t[0], {t[1]}, t[2]); }},
          {"x[i] = number", {matrix, i}, [=](const Tensors& t) { return put(t[0], {t[1]}, t[0].sum()); }},
          {"x[i, j] = elements",
           {matrix, i, j, matrix.select(0, 1).slice(0, 0, 3)},
           [=](const Tensors& t) {
             return put(t[0], {t[1], t[2]}, t[3]);
           }},
          {"x[:, j] = columns",
           {matrix, j},
           [=](const Tensors& t) {
             return put(t[0], {{}, t[1]}, t[0].slice(1, 0, 3) + 1);
           }},
          {"x.t()[i] = rows",
           {matrix, i},
           [=](const Tensors& t) { return put(t[0].t(), {t[1]}, t[0].t().slice(0, 0, 3)); }},
          {"x[1][i] = elements, in place", {matrix, i}, [=](const Tensors& t) {
             auto changed = t[0].clone();
             changed.select(0, 1).index_put_({t[1]}, t[0].select(0, 0).slice(0, 0, 3), adds);
             return changed;
           }}};
}

TEST(XlaSubscripts, WriteWhatTheyDoOnTheCpu) {
  at::manual_seed(22);
  for (const bool adds : {false, true}) {
    for (const auto& tested : written_cases(normal({4, 5}), adds)) {
      expect_as_on_cpu(tested);
      expect_gradients_as_on_cpu(tested);
    }
    for (const auto& tested : written_cases(classes(20, 9).view({4, 5}), adds)) expect_as_on_cpu(tested);
  }
}

TEST(XlaSubscripts, AddAllOfSeveralValuesForOneElement) {
  at::manual_seed(23);
  const Case repeated{"x[i] += rows",
                      {normal({4, 5}), places({1, 1, -3, 0}), normal({4, 5})},
                      [](const Tensors& t) { return with_put(t[0], {t[1]}, t[2], true); }};
  expect_as_on_cpu(repeated);
  expect_gradients_as_on_cpu(repeated);
  // What 16 bits cannot tell apart one by one.
  const auto ones = at::ones({300}, at::kBFloat16), sum = at::zeros({1}, at::kBFloat16);
  const auto got =
      with_put(sum.to(kDevice), {at::zeros({300}, at::kLong).to(kDevice)}, ones.to(kDevice), true);
  EXPECT_EQ(got.cpu().item<float>(), 300);
}

// How many elements a mask finds is not known beforehand.
TEST(XlaSubscripts, MasksAreLeftToTheCpu) {
  const auto matrix = normal({4, 5});
  const auto before = fallbacks();
  const auto on_device = matrix.to(kDevice);
  EXPECT_TRUE(at::equal(found(on_device, {on_device > 0}).cpu(), found(matrix, {matrix > 0})));
  EXPECT_GT(fallbacks(), before);
}

TEST(XlaRunningSums, AreThoseOfTheCpu) {
  at::manual_seed(24);
  const auto a = normal({3, 7, 4});
  for (const auto& tested : std::vector<Case>{
           {"cumsum", {a}, [](const Tensors& t) { return t[0].cumsum(1); }},
           {"cumsum of the last", {a}, [](const Tensors& t) { return t[0].cumsum(-1) * t[0]; }},
           {"cumsum in float64", {a}, [](const Tensors& t) { return t[0].cumsum(0, at::kDouble); }},
           {"cumsum of one", {a.slice(1, 0, 1)}, [](const Tensors& t) { return t[0].cumsum(1); }}}) {
    expect_as_on_cpu(tested);
    expect_gradients_as_on_cpu(tested);
  }
  for (const auto& tested : std::vector<Case>{
           {"cumsum of integers", {classes(30, 5)}, [](const Tensors& t) { return t[0].cumsum(0); }},
           {"cumsum of bool", {a > 0}, [](const Tensors& t) { return t[0].cumsum(1); }},
           {"cumsum of bfloat16",
            {at::ones({300}, at::kBFloat16)},
            [](const Tensors& t) { return t[0].cumsum(0); }},
           {"cumsum in place", {a}, [](const Tensors& t) { return t[0].clone().cumsum_(2); }}})
    expect_as_on_cpu(tested);
}

}  // namespace
}  // namespace lockstep::xla
