// Operators of networks on the device, with their derivatives, beside the same on the CPU.
#include <limits>

#include <gmock/gmock.h>

#include <torch/torch.h>

#include <lockstep/optim/grad_norm.h>

#include "xla/device.h"
#include "xla/device_case.h"

namespace lockstep::xla {
namespace {

using namespace test;

void expect_all_as_on_cpu(const std::vector<Case>& cases) {
  for (const auto& tested : cases) expect_as_on_cpu(tested);
}

// Values and gradients.
void expect_all_derived_as_on_cpu(const std::vector<Case>& cases) {
  for (const auto& tested : cases) {
    expect_as_on_cpu(tested);
    expect_gradients_as_on_cpu(tested);
  }
}

TEST(XlaOperators, ActivationsAreThoseOfTheCpu) {
  at::manual_seed(11);
  const auto a = normal({5, 4}) * 3, wide = normal({2, 3, 4}).to(at::kDouble);
  expect_all_derived_as_on_cpu({
      {"clamp", {a}, [](const Tensors& t) { return t[0].clamp(-0.5, 1); }},
      {"clamp_min, clamp_max", {wide}, [](const Tensors& t) { return t[0].clamp_min(-0.5).clamp_max(0.3); }},
      {"clamp by tensors", {a}, [](const Tensors& t) { return t[0].clamp(t[0] * 0 - 0.5, t[0] * 0 + 1); }},
      {"hardtanh", {a}, [](const Tensors& t) { return at::hardtanh(t[0], -0.7, 0.9); }},
      {"relu6", {a}, [](const Tensors& t) { return at::relu6(t[0] * 4); }},
      {"leaky_relu", {a}, [](const Tensors& t) { return at::leaky_relu(t[0], 0.2); }},
      {"silu", {wide}, [](const Tensors& t) { return at::silu(t[0]); }},
      {"elu", {a}, [](const Tensors& t) { return at::elu(t[0], 0.7); }},
      {"selu", {a}, [](const Tensors& t) { return at::selu(t[0]); }},
      {"softplus", {a}, [](const Tensors& t) { return at::softplus(t[0] * 10, 2, 3); }},
      {"log_sigmoid", {a}, [](const Tensors& t) { return at::log_sigmoid(t[0]); }},
  });
  expect_all_as_on_cpu({
      {"clamp integers", {classes(9, 9)}, [](const Tensors& t) { return t[0].clamp(2, 5); }},
      {"in place", {a}, [](const Tensors& t) { return at::leaky_relu(t[0], 0.1).mul_(2).clamp_(-0.1, 2); }},
      {"silu of bfloat16",
       {at::full({3}, 0.0, at::kBFloat16)},
       [](const Tensors& t) { return at::silu(t[0]); }},
  });
}

std::vector<Case> extreme_cases(const at::Tensor& a) {
  return {
      {"argmax", {a}, [](const Tensors& t) { return t[0].argmax(); }},
      {"argmax of a dimension", {a}, [](const Tensors& t) { return t[0].argmax(0) + t[0].argmin(0); }},
      {"argmax, kept", {a}, [](const Tensors& t) { return t[0].argmax(-1, true); }},
      {"accuracy", {a}, [](const Tensors& t) { return (t[0].argmax(1) == 1).to(at::kFloat).mean(); }},
      {"max", {a}, [](const Tensors& t) { return t[0].max() - t[0].min(); }},
      {"max of a dimension", {a}, [](const Tensors& t) { return std::get<0>(t[0].max(1)); }},
      {"places of min", {a}, [](const Tensors& t) { return std::get<1>(t[0].min(0, true)); }},
      {"amax, amin",
       {a},
       [](const Tensors& t) {
         return t[0].amax(1) + t[0].amin({0, 1});
       }},
  };
}

TEST(XlaOperators, ExtremesAreThoseOfTheCpu) {
  at::manual_seed(12);
  const auto a = normal({4, 6});
  expect_all_as_on_cpu(extreme_cases(a));
  expect_all_as_on_cpu(extreme_cases(at::randint(-3, 3, {3, 5})));  // with several of the same
  expect_all_as_on_cpu(extreme_cases(at::randint(200, {3, 5}, at::kByte)));
  expect_all_as_on_cpu(extreme_cases(a.masked_fill(a > 1, kNan)));
  expect_all_as_on_cpu({
      {"all", {a > -9}, [](const Tensors& t) { return t[0].all().logical_and(t[0].any()); }},
      {"all of rows", {a > 0}, [](const Tensors& t) { return t[0].all(1); }},
      {"any, kept", {a}, [](const Tensors& t) { return (t[0] > 1).any(0, true); }},
      {"isneginf", {a.masked_fill(a > 1, -INFINITY)}, [](const Tensors& t) { return at::isneginf(t[0]); }},
      {"isfinite", {a.masked_fill(a > 1, kNan)}, [](const Tensors& t) { return at::isfinite(t[0]).all(); }},
  });
  expect_all_derived_as_on_cpu({
      {"max of a row", {a}, [](const Tensors& t) { return t[0].amax(1); }},
  });
}

TEST(XlaOperators, VariancesAndNormsAreThoseOfTheCpu) {
  at::manual_seed(13);
  const auto a = normal({4, 6, 3}) + 2;
  expect_all_derived_as_on_cpu({
      {"var", {a}, [](const Tensors& t) { return t[0].var() * 2; }},
      {"var of dimensions",
       {a},
       [](const Tensors& t) {
         return t[0].var({0, 2}, false, true);
       }},
      {"std", {a}, [](const Tensors& t) { return t[0].std(1, 0); }},
      {"var_mean",
       {a},
       [](const Tensors& t) {
         const auto [var, mean] = at::var_mean(t[0], 1);
         return var + 3 * mean;
       }},
      {"norm", {a}, [](const Tensors& t) { return t[0].norm() + t[0].norm(2, 1).sum(); }},
  });
  for (const double order : {1.0, 2.0, 3.0, -1.0, double{INFINITY}})
    expect_as_on_cpu(
        {"a norm", {a}, [=](const Tensors& t) { return at::linalg_vector_norm(t[0], order, 1); }});
}

// The norm and clipping of our optimizers, and LibTorch's.
TEST(XlaOperators, GradientsAreClippedAsOnTheCpu) {
  at::manual_seed(14);
  const Tensors several{normal({2500}), normal({3, 4})};
  const auto expected = block_square_sums(several), got = block_square_sums(on_device(several));
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-9 * expected[i]);
  for (const auto algorithm : {ClipAlgorithm::kNorm, ClipAlgorithm::kValue})
    expect_as_on_cpu({"clipping", {normal({1500}), normal({7, 3}), normal({})}, [=](const Tensors& t) {
                        Tensors parameters, gradients;
                        for (const auto& gradient : t) {
                          parameters.push_back(at::zeros_like(gradient).requires_grad_());
                          parameters.back().mutable_grad() = gradient.clone();
                        }
                        clip_gradients_lazily(parameters, {.value = 0.5, .algorithm = algorithm});
                        for (const auto& parameter : parameters)
                          gradients.push_back(parameter.grad().flatten());
                        return at::cat(gradients);
                      }});
}

Case convolution_case(const char* name, at::IntArrayRef input, at::IntArrayRef weight, at::IntArrayRef stride,
                      at::IntArrayRef padding, at::IntArrayRef dilation, std::int64_t groups,
                      at::IntArrayRef more = {}) {
  const bool is_transposed = !more.empty();
  const auto channels = is_transposed ? weight[1] * groups : weight[0];
  const auto s = stride.vec(), p = padding.vec(), d = dilation.vec(),
             o = is_transposed ? more.vec() : std::vector<std::int64_t>(stride.size());
  return {name, {normal(input), normal(weight), normal({channels})}, [=](const Tensors& t) {
            return at::convolution(t[0], t[1], t[2], s, p, d, is_transposed, o, groups);
          }};
}

TEST(XlaOperators, ConvolutionsAreThoseOfTheCpu) {
  at::manual_seed(15);
  expect_all_derived_as_on_cpu({
      convolution_case("conv2d", {2, 3, 8, 7}, {4, 3, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 1),
      convolution_case("strides", {2, 3, 9, 8}, {4, 3, 3, 2}, {2, 3}, {0, 1}, {1, 1}, 1),
      convolution_case("dilation", {1, 2, 11, 11}, {3, 2, 3, 3}, {2, 1}, {2, 2}, {2, 3}, 1),
      convolution_case("groups", {2, 4, 6, 6}, {6, 2, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 2),
      convolution_case("depthwise", {2, 4, 6, 6}, {4, 1, 3, 3}, {2, 2}, {1, 1}, {1, 1}, 4),
      convolution_case("conv1d", {2, 3, 10}, {4, 3, 4}, {2}, {1}, {1}, 1),
      convolution_case("conv3d", {1, 2, 5, 6, 4}, {3, 2, 2, 3, 2}, {1, 2, 1}, {0, 1, 1}, {1, 1, 1}, 1),
      convolution_case("transposed", {2, 3, 5, 4}, {3, 2, 3, 3}, {2, 2}, {1, 1}, {1, 1}, 1, {1, 0}),
      convolution_case("transposed, groups", {2, 4, 5, 5}, {4, 3, 2, 2}, {2, 1}, {0, 1}, {1, 2}, 2, {0, 0}),
      {"without bias",
       {normal({2, 3, 5, 5}), normal({4, 3, 1, 1})},
       [](const Tensors& t) { return at::conv2d(t[0], t[1]); }},
      {"padding by name",
       {normal({2, 3, 5, 5}), normal({4, 3, 3, 3})},
       [](const Tensors& t) { return at::conv2d(t[0], t[1], {}, 1, "same"); }},
  });
}

TEST(XlaOperators, PoolsAreThoseOfTheCpu) {
  at::manual_seed(16);
  const auto a = normal({2, 3, 9, 8}), same = at::randint(3, {2, 2, 6, 6}).to(at::kFloat);
  expect_all_derived_as_on_cpu({
      {"max_pool2d", {a}, [](const Tensors& t) { return at::max_pool2d(t[0], 2); }},
      {"max_pool2d, padded",
       {a},
       [](const Tensors& t) {
         return at::max_pool2d(t[0], {3, 2}, {2, 1}, 1);
       }},
      {"max_pool2d, ceil",
       {a},
       [](const Tensors& t) { return at::max_pool2d(t[0], 3, 2, 0, 1, /*ceil_mode=*/true); }},
      {"max_pool2d of equals", {same}, [](const Tensors& t) { return at::max_pool2d(t[0], 3, 1, 1); }},
      {"max_pool1d", {a[0]}, [](const Tensors& t) { return at::max_pool1d(t[0], 2); }},
      {"avg_pool2d", {a}, [](const Tensors& t) { return at::avg_pool2d(t[0], 2); }},
      {"avg_pool2d, padded", {a}, [](const Tensors& t) { return at::avg_pool2d(t[0], 3, 2, 1); }},
      {"avg_pool2d without padding",
       {a},
       [](const Tensors& t) {
         return at::avg_pool2d(t[0], 3, {2, 1}, 1, false, false);
       }},
      {"avg_pool2d, ceil", {a}, [](const Tensors& t) { return at::avg_pool2d(t[0], 3, 2, 1, true); }},
      {"avg_pool2d by a divisor",
       {a},
       [](const Tensors& t) { return at::avg_pool2d(t[0], 3, 3, 0, false, true, 5); }},
      {"adaptive",
       {a},
       [](const Tensors& t) {
         return at::adaptive_avg_pool2d(t[0], {4, 3});
       }},
      {"global",
       {a},
       [](const Tensors& t) {
         return at::adaptive_avg_pool2d(t[0], {1, 1});
       }},
  });
  expect_all_as_on_cpu({
      {"places",
       {a},
       [](const Tensors& t) { return std::get<1>(at::max_pool2d_with_indices(t[0], 3, 2, 1)); }},
      {"places of equals",
       {same},
       [](const Tensors& t) { return std::get<1>(at::max_pool2d_with_indices(t[0], 3, 2, 1)); }},
      {"holes", {a}, [](const Tensors& t) { return at::max_pool2d(t[0], 2, 1, 0, 2); }},
  });
}

// Batch norm, and its running statistics behind it.
at::Tensor batch_norm_with_statistics(const Tensors& t, bool is_training, double momentum) {
  const auto channels = t[0].size(1);
  const auto mean = at::linspace(-1, 1, channels).to(t[0].device()), var = mean * mean + 0.5;
  auto running_mean = mean.clone(), running_var = var.clone();
  const auto made =
      at::batch_norm(t[0], t.size() > 1 ? t[1] : at::Tensor(), t.size() > 1 ? t[2] : at::Tensor(),
                     running_mean, running_var, is_training, momentum, 1e-5, false);
  return at::cat({made.flatten(), running_mean, running_var});
}

TEST(XlaOperators, NormsAreThoseOfTheCpu) {
  at::manual_seed(17);
  const auto a = normal({4, 6, 3, 2}) * 2 + 1, weight = normal({6}), bias = normal({6});
  const auto rows = normal({2, 3, 8}) + 1, width = normal({8}), shift = normal({8});
  for (const bool is_training : {true, false})
    expect_all_derived_as_on_cpu({
        {"batch norm",
         {a, weight, bias},
         [=](const Tensors& t) { return batch_norm_with_statistics(t, is_training, 0.1); }},
        {"batch norm of rows",
         {normal({5, 3})},
         [=](const Tensors& t) { return batch_norm_with_statistics(t, is_training, 0.3); }},
    });
  expect_all_derived_as_on_cpu({
      {"batch norm without statistics",
       {a, weight, bias},
       [](const Tensors& t) { return at::batch_norm(t[0], t[1], t[2], {}, {}, true, 0.1, 1e-5, false); }},
      {"layer norm",
       {rows, width, shift},
       [](const Tensors& t) { return at::layer_norm(t[0], {8}, t[1], t[2]); }},
      {"layer norm without weights",
       {rows},
       [](const Tensors& t) {
         return at::layer_norm(t[0], {3, 8});
       }},
      {"layer norm of float64",
       {rows.to(at::kDouble)},
       [](const Tensors& t) { return at::layer_norm(t[0], {8}); }},
      {"group norm", {a, weight, bias}, [](const Tensors& t) { return at::group_norm(t[0], 3, t[1], t[2]); }},
      {"group norm without weights", {a}, [](const Tensors& t) { return at::group_norm(t[0], 2); }},
      {"instance norm",
       {a},
       [](const Tensors& t) { return at::instance_norm(t[0], {}, {}, {}, {}, true, 0.1, 1e-5, false); }},
  });
}

TEST(XlaOperators, IndicesFindWhatTheyDoOnTheCpu) {
  at::manual_seed(18);
  const auto table = normal({7, 4}), tokens = classes(10, 7).view({2, 5}), rows = classes(5, 7);
  const auto places = at::randint(4, {7, 3});
  expect_all_derived_as_on_cpu({
      {"embedding", {table, tokens}, [](const Tensors& t) { return at::embedding(t[0], t[1]); }},
      {"embedding with padding",
       {table, tokens},
       [](const Tensors& t) { return at::embedding(t[0], t[1], 2); }},
      {"index_select", {table, rows}, [](const Tensors& t) { return t[0].index_select(0, t[1]); }},
      {"index_select of columns",
       {table, classes(3, 4)},
       [](const Tensors& t) { return t[0].index_select(-1, t[1]); }},
      {"gather", {table, places}, [](const Tensors& t) { return t[0].gather(1, t[1].narrow(0, 0, 7)); }},
      {"gather of rows", {table, places.clamp(0, 3)}, [](const Tensors& t) { return t[0].gather(0, t[1]); }},
      {"flip",
       {table},
       [](const Tensors& t) {
         return t[0].flip({0, 1});
       }},
      {"tril, triu", {table}, [](const Tensors& t) { return t[0].tril(-1) * 2 + t[0].triu(1); }},
  });
  expect_all_as_on_cpu({
      {"tokens of int32",
       {table, tokens.to(at::kInt)},
       [](const Tensors& t) { return at::embedding(t[0], t[1]); }},
      {"arange", {table}, [](const Tensors& t) { return at::arange(5, t[0].options().dtype(at::kLong)); }},
      {"arange by steps", {table}, [](const Tensors& t) { return at::arange(3, 11, 2, t[0].options()); }},
      {"scatter_add",
       {table, places},
       [](const Tensors& t) { return t[0].scatter_add(1, t[1], t[0].narrow(1, 0, 3).contiguous()); }},
  });
}

TEST(XlaOperators, AttentionIsThatOfTheCpu) {
  at::manual_seed(19);
  const Tensors parts{normal({2, 3, 6, 4}), normal({2, 3, 6, 4}), normal({2, 3, 6, 4})};
  const auto is_seen = normal({6, 6}) > -1;
  expect_all_derived_as_on_cpu({
      {"attention", parts,
       [](const Tensors& t) { return at::scaled_dot_product_attention(t[0], t[1], t[2]); }},
      {"causal attention", parts,
       [](const Tensors& t) { return at::scaled_dot_product_attention(t[0], t[1], t[2], {}, 0.0, true); }},
      {"attention with a mask",
       {parts[0], parts[1], parts[2], is_seen},
       [](const Tensors& t) { return at::scaled_dot_product_attention(t[0], t[1], t[2], t[3]); }},
  });
}

TEST(XlaOperators, LossesAreThoseOfTheCpu) {
  at::manual_seed(20);
  const auto scores = normal({6, 4}), target = classes(6, 4), weight = normal({4}).abs() + 0.1;
  const auto ignored = target.clone().index_fill_(0, at::tensor({1, 4}, at::kLong), 2);
  const auto truth = at::randint(2, {6, 4}).to(at::kFloat);
  for (const auto reduction : {at::Reduction::None, at::Reduction::Mean, at::Reduction::Sum})
    expect_all_derived_as_on_cpu({
        {"cross entropy with weights",
         {scores, target},
         [=](const Tensors& t) {
           return at::cross_entropy_loss(t[0], t[1], weight.to(t[0].device()), reduction);
         }},
        {"ignored classes",
         {scores, ignored},
         [=](const Tensors& t) {
           return at::cross_entropy_loss(t[0], t[1], weight.to(t[0].device()), reduction, 2);
         }},
        {"smoothed labels",
         {scores, target},
         [=](const Tensors& t) { return at::cross_entropy_loss(t[0], t[1], {}, reduction, -100, 0.1); }},
        {"binary cross entropy",
         {scores, truth},
         [=](const Tensors& t) {
           return at::binary_cross_entropy_with_logits(t[0], t[1], {}, {}, reduction);
         }},
    });
}

// Mean, deviation and range of many numbers, and that they follow from seed and state alone.
TEST(XlaRandom, NumbersAreThoseOfTheirDistribution) {
  auto generator = at::globalContext().defaultGenerator(kDevice);
  generator.set_current_seed(21);
  const auto options = at::TensorOptions(kDevice);
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const auto normals = at::randn({20000}, options.dtype(dtype)).cpu();
    EXPECT_NEAR(normals.mean().item<double>(), 0.0, 0.03);
    EXPECT_NEAR(normals.std().item<double>(), 1.0, 0.03);
    EXPECT_NEAR((normals.abs() < 1.96).to(at::kDouble).mean().item<double>(), 0.95, 0.01);
    const auto uniforms = at::empty({20000}, options.dtype(dtype)).uniform_(2, 4).cpu();
    EXPECT_NEAR(uniforms.mean().item<double>(), 3.0, 0.03);
    EXPECT_GE(uniforms.min().item<double>(), 2.0);
    EXPECT_LE(uniforms.max().item<double>(), 4.0);
  }
  const auto drawn = at::bernoulli(at::full({20000}, 0.3, options)).cpu();
  EXPECT_NEAR(drawn.mean().item<double>(), 0.3, 0.02);
  const auto whole = at::randint(-2, 5, {20000}, options.dtype(at::kLong)).cpu();
  EXPECT_EQ(whole.min().item<int>(), -2);
  EXPECT_EQ(whole.max().item<int>(), 4);
  EXPECT_NEAR(whole.to(at::kDouble).mean().item<double>(), 1.0, 0.05);
}

TEST(XlaRandom, NumbersFollowFromSeedAndState) {
  auto generator = at::globalContext().defaultGenerator(kDevice);
  const auto draw = [] { return at::randn({100}, at::TensorOptions(kDevice)).cpu(); };
  const auto before = counts().on_cpu;
  generator.set_current_seed(22);
  const auto first = draw();
  const auto state = generator.get_state();
  const auto second = draw();
  EXPECT_FALSE(at::equal(first, second));
  generator.set_state(state);
  EXPECT_TRUE(at::equal(draw(), second));
  generator.set_current_seed(22);
  EXPECT_TRUE(at::equal(draw(), first));
  generator.set_current_seed(23);
  EXPECT_FALSE(at::equal(draw(), first));
  auto own = at::globalContext().defaultGenerator(kDevice).clone();
  own.set_current_seed(22);
  EXPECT_TRUE(at::equal(at::empty({100}, at::TensorOptions(kDevice)).normal_(0, 1, own).cpu(), first));
  EXPECT_EQ(counts().on_cpu, before);
}

TEST(XlaRandom, DropoutKeepsTheMean) {
  const auto before = counts().on_cpu;
  auto ones = at::ones({20000}).to(kDevice).requires_grad_();
  const auto dropped = at::dropout(ones, 0.25, /*train=*/true);
  dropped.sum().backward();
  const auto values = dropped.detach().cpu();
  EXPECT_NEAR(values.mean().item<double>(), 1.0, 0.03);
  EXPECT_TRUE(at::equal(ones.grad().cpu(), values));
  EXPECT_TRUE(((values == 0).logical_or((values - 4.0 / 3).abs() < 1e-6)).all().item<bool>());
  EXPECT_EQ(counts().on_cpu, before);
}

}  // namespace
}  // namespace lockstep::xla
