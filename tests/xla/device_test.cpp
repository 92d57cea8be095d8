// Tensors, operators and training on the device, beside the same on the CPU.
#include "xla/device.h"

#include <gmock/gmock.h>

#include <functional>

#include <torch/torch.h>

#include <lockstep/base/error.h>

#include "support/expect_error.h"
#include "xla/device_case.h"

namespace lockstep::xla {
namespace {

using namespace test;
using ::testing::HasSubstr;

std::vector<Case> pointwise_cases() {
  const auto a = normal({3, 4}), b = normal({3, 4}), row = normal({4}), positive = a.abs() + 0.1;
  const auto whole = at::randint(5, {3, 4});
  return {
      {"add", {a, b}, [](const Tensors& t) { return t[0] + t[1]; }},
      {"add a row", {a, row}, [](const Tensors& t) { return t[0] + t[1]; }},
      {"add with alpha", {a, b}, [](const Tensors& t) { return at::add(t[0], t[1], 0.3); }},
      {"add a number", {a}, [](const Tensors& t) { return t[0] + 2.5; }},
      {"add integers and numbers", {whole}, [](const Tensors& t) { return t[0] + 2.5; }},
      {"add integers", {whole}, [](const Tensors& t) { return t[0] + 7; }},
      {"add float and double", {a, b.to(at::kDouble)}, [](const Tensors& t) { return t[0] + t[1]; }},
      {"sub", {a, b}, [](const Tensors& t) { return at::sub(t[0], t[1], 2); }},
      {"rsub", {a}, [](const Tensors& t) { return 1.5 - t[0]; }},
      {"mul", {a, b}, [](const Tensors& t) { return t[0] * t[1]; }},
      {"mul by bool", {a, b > 0}, [](const Tensors& t) { return t[0] * t[1]; }},
      {"div", {a, positive}, [](const Tensors& t) { return t[0] / t[1]; }},
      {"div integers", {whole, whole + 1}, [](const Tensors& t) { return t[0] / t[1]; }},
      {"in place",
       {a, b},
       [](const Tensors& t) { return t[0].clone().mul_(3).add_(t[1], -0.5).sub_(1).div_(t[1].abs() + 1); }},
      {"addcmul, addcdiv",
       {a, b, positive},
       [](const Tensors& t) { return at::addcdiv(at::addcmul(t[0], t[1], t[2], 0.5), t[1], t[2], -2); }},
      {"lerp", {a, b}, [](const Tensors& t) { return at::lerp(t[0], t[1], 0.1); }},
      {"maximum, minimum",
       {a, b, row},
       [](const Tensors& t) { return at::minimum(at::maximum(t[0], t[1]), t[2]); }},
      {"eq", {whole, whole.flip(0)}, [](const Tensors& t) { return t[0] == t[1]; }},
      {"gt a number",
       {a},
       [](const Tensors& t) { return (t[0] > 0.5).logical_or(t[0] < -0.5).logical_not(); }},
      {"ge, le, ne",
       {a, b},
       [](const Tensors& t) { return (t[0] >= t[1]).logical_and(t[0].le(1)).bitwise_and(t[0].ne(t[1])); }},
      {"neg, exp, abs", {a}, [](const Tensors& t) { return (-t[0]).exp().abs(); }},
      {"log, sqrt, rsqrt, reciprocal",
       {positive},
       [](const Tensors& t) { return t[0].log() + t[0].sqrt() + t[0].rsqrt() + t[0].reciprocal(); }},
      {"tanh, sigmoid, sin, cos",
       {a},
       [](const Tensors& t) { return t[0].tanh() + t[0].sigmoid() + t[0].sin() + t[0].cos(); }},
      {"floor, ceil, sign", {a}, [](const Tensors& t) { return t[0].floor() + t[0].ceil() + t[0].sign(); }},
      {"pow",
       {positive},
       [](const Tensors& t) { return t[0].pow(2) + t[0].pow(0.5) + t[0].pow(1.7) + t[0].pow(1); }},
      {"relu", {a}, [](const Tensors& t) { return t[0].relu(); }},
      {"gelu", {a}, [](const Tensors& t) { return at::gelu(t[0]) + at::gelu(t[0], "tanh"); }},
      {"where", {a, b}, [](const Tensors& t) { return at::where(t[0] > t[1], t[0], t[1] * 2); }},
      {"masked_fill", {a}, [](const Tensors& t) { return t[0].masked_fill(t[0] > 0, -7.5); }},
      {"fill, zero",
       {a},
       [](const Tensors& t) {
         return at::full_like(t[0], 2.5) + at::zeros_like(t[0]) + at::ones_like(t[0]);
       }},
      {"infinities", {a}, [](const Tensors& t) { return t[0].masked_fill(t[0] > 0, -INFINITY).exp(); }},
      {"bfloat16", {a.to(at::kBFloat16), b.to(at::kBFloat16)}, [](const Tensors& t) { return t[0] + t[1]; }},
      {"types",
       {a},
       [](const Tensors& t) { return (t[0] * 3).to(at::kLong).to(at::kDouble) + t[0].to(at::kBool); }},
  };
}

std::vector<Case> other_cases() {
  const auto a = normal({5, 4}), b = normal({4, 3}), bias = normal({3}), target = classes(5, 4);
  const auto ignored = target.clone().index_fill_(0, at::tensor({1}, at::kLong), -100);
  return {
      {"mm", {a, b}, [](const Tensors& t) { return at::mm(t[0], t[1]); }},
      {"mm of transposed", {a, b}, [](const Tensors& t) { return at::mm(t[1].t(), t[0].t()); }},
      {"linear", {a, b, bias}, [](const Tensors& t) { return at::linear(t[0], t[1].t(), t[2]); }},
      {"addmm", {bias, a, b}, [](const Tensors& t) { return at::addmm(t[0], t[1], t[2], 0.5, 2); }},
      {"bmm", {normal({2, 3, 4}), normal({2, 4, 5})}, [](const Tensors& t) { return at::bmm(t[0], t[1]); }},
      {"mm of bfloat16",
       {at::ones({5, 4}, at::kBFloat16), at::ones({4, 3}, at::kBFloat16)},
       [](const Tensors& t) { return at::mm(t[0], t[1]); }},
      // Sums of eighths are exact in float32, so that all that differs is how often a result is rounded.
      {"linear of bfloat16, rounded once",
       {classes(64 * 32, 17).sub(8).reshape({64, 32}).div(8).to(at::kBFloat16),
        classes(48 * 32, 17).sub(8).reshape({48, 32}).div(8).to(at::kBFloat16),
        normal({48}).to(at::kBFloat16)},
       [](const Tensors& t) { return at::linear(t[0], t[1], t[2]); }},
      {"sum",
       {a},
       [](const Tensors& t) {
         return t[0].sum() + t[0].sum(0).sum() + t[0].sum(std::vector<std::int64_t>{-1}, true).sum();
       }},
      {"sum of bool", {a > 0}, [](const Tensors& t) { return t[0].sum(); }},
      {"mean", {a}, [](const Tensors& t) { return t[0].mean() + t[0].mean(1); }},
      {"cat",
       {a, a * 2},
       [](const Tensors& t) {
         return at::cat({t[0], t[1]}, -1);
       }},
      {"softmax", {a}, [](const Tensors& t) { return at::softmax(t[0], 1) + at::softmax(t[0], 0); }},
      {"log_softmax", {a * 100}, [](const Tensors& t) { return at::log_softmax(t[0], -1); }},
      {"cross_entropy", {a, target}, [](const Tensors& t) { return at::cross_entropy_loss(t[0], t[1]); }},
      {"cross_entropy, sum",
       {a, target},
       [](const Tensors& t) { return at::cross_entropy_loss(t[0], t[1], {}, at::Reduction::Sum); }},
      {"cross_entropy, none",
       {a, ignored},
       [](const Tensors& t) { return at::cross_entropy_loss(t[0], t[1], {}, at::Reduction::None); }},
      {"cross_entropy with ignored rows",
       {a, ignored},
       [](const Tensors& t) { return at::cross_entropy_loss(t[0], t[1]); }},
      {"mse_loss",
       {a, a * 0.5},
       [](const Tensors& t) {
         return at::mse_loss(t[0], t[1]) + at::mse_loss(t[0], t[1], at::Reduction::Sum);
       }},
      {"mse_loss, none",
       {a, a * 0.5},
       [](const Tensors& t) { return at::mse_loss(t[0], t[1], at::Reduction::None); }},
  };
}

std::vector<Case> view_cases() {
  const auto a = at::arange(24, at::kFloat).view({2, 3, 4});
  return {
      {"transpose", {a}, [](const Tensors& t) { return t[0].transpose(0, 2) * 1; }},
      {"permute",
       {a},
       [](const Tensors& t) {
         return t[0].permute({1, 2, 0}).contiguous();
       }},
      {"expand",
       {a},
       [](const Tensors& t) {
         return t[0].select(0, 1).unsqueeze(1).expand({3, 5, 4}) * 1;
       }},
      {"narrow", {a}, [](const Tensors& t) { return t[0].narrow(0, 1, 1) * 1; }},
      {"narrow inside", {a}, [](const Tensors& t) { return t[0].narrow(1, 1, 2) * 1; }},
      {"steps", {a}, [](const Tensors& t) { return t[0].slice(2, 0, 4, 2) * 1; }},
      {"diagonal", {a}, [](const Tensors& t) { return t[0].select(0, 0).diagonal() * 1; }},
      {"reshape",
       {a},
       [](const Tensors& t) {
         return t[0].transpose(0, 1).reshape({6, 4});
       }},
      {"write a row",
       {a},
       [](const Tensors& t) {
         auto c = t[0].clone();
         c.select(0, 1).fill_(7.5);
         return c;
       }},
      {"write a column",
       {a},
       [](const Tensors& t) {
         auto c = t[0].clone();
         c.select(2, 1).mul_(3);
         return c;
       }},
      {"write transposed",
       {a},
       [](const Tensors& t) {
         auto c = t[0].clone();
         c.transpose(0, 2).add_(t[0].transpose(0, 2));
         return c;
       }},
      {"copy between types",
       {a},
       [](const Tensors& t) {
         auto c = at::zeros({2, 3, 4}, t[0].options().dtype(at::kLong));
         c.copy_(t[0].select(0, 1));
         return c;
       }},
      {"an empty result", {a}, [](const Tensors& t) { return t[0].narrow(0, 0, 0) + 1; }},
  };
}

TEST(XlaOperators, PointwiseAreThoseOfTheCpu) {
  at::manual_seed(1);
  for (const auto& tested : pointwise_cases()) expect_as_on_cpu(tested);
}

TEST(XlaOperators, ProductsSumsAndLossesAreThoseOfTheCpu) {
  at::manual_seed(2);
  for (const auto& tested : other_cases()) expect_as_on_cpu(tested);
}

TEST(XlaOperators, ViewsAreReadAndWritten) {
  for (const auto& tested : view_cases()) expect_as_on_cpu(tested);
}

TEST(XlaOperators, DerivativesAreThoseOfTheCpu) {
  at::manual_seed(3);
  const auto a = normal({5, 4}), target = classes(5, 4);
  const std::vector<Case> cases{
      {"relu", {a}, [](const Tensors& t) { return t[0].relu() * 2; }},
      {"gelu", {a}, [](const Tensors& t) { return at::gelu(t[0]) * t[0]; }},
      {"gelu by tanh", {a}, [](const Tensors& t) { return at::gelu(t[0], "tanh") * t[0]; }},
      {"tanh, sigmoid", {a}, [](const Tensors& t) { return t[0].tanh() * t[0].sigmoid(); }},
      {"softmax", {a, a * 2}, [](const Tensors& t) { return at::softmax(t[0], 1) * t[1]; }},
      {"cross_entropy", {a, target}, [](const Tensors& t) { return at::cross_entropy_loss(t[0], t[1]) * 3; }},
      {"cross_entropy, none",
       {a, target},
       [](const Tensors& t) { return at::cross_entropy_loss(t[0], t[1], {}, at::Reduction::None); }},
      {"mse_loss", {a, a * 2}, [](const Tensors& t) { return at::mse_loss(t[0], t[1]); }},
      {"mean and mm", {a, a.t().contiguous()}, [](const Tensors& t) { return at::mm(t[0], t[1]).mean(0); }},
  };
  for (const auto& tested : cases) expect_gradients_as_on_cpu(tested);
}

TEST(XlaTensors, AreCopiedAndRead) {
  const auto values = at::arange(6, at::kFloat).view({2, 3});
  const auto tensor = values.to(kDevice);
  EXPECT_EQ(tensor.device(), kDevice);
  expect_close(tensor.cpu(), values, "a copy");
  expect_close(tensor.t().cpu(), values.t(), "a view");
  expect_close(tensor.to(at::Device(at::kXLA, 1)).cpu(), values, "another device");
  EXPECT_EQ(tensor.select(0, 1).select(0, 2).item<float>(), 5.0F);
  expect_close(at::empty({2}, tensor.options()).cpu(), at::zeros({2}), "what was not written");
}

TEST(XlaTensors, OfUnknownTypesAreRefused) {
  test::expect_error<Error>(
      [] { at::empty({2}, at::TensorOptions().dtype(at::kComplexFloat).device(kDevice)); },
      {"element type", "ComplexFloat"});
}

TEST(XlaTensors, OfTwoDevicesAreRefusedTogetherAndCopiedFromOneToTheOther) {
  const auto here = at::ones({2}, at::TensorOptions(kDevice)), there = here.to(at::Device(at::kXLA, 1));
  test::expect_error<Error>(
      [&] { (void)at::add(here, there); },
      {"aten::add is given tensors of two XLA devices", "xla:0 and xla:1", "starts a process for each"});
  EXPECT_TRUE(at::equal((there + there.to(kDevice).to(there.device())).cpu(), at::full({2}, 2.0)));
}

TEST(XlaTensors, AreNotComputedWhenNobodyHoldsThem) {
  const auto a = at::ones({4}).to(kDevice);
  const auto before = counts().runs;
  { const auto dropped = (a + 1) * 2; }
  synchronize_device(0);
  EXPECT_EQ(counts().runs, before);
}

TEST(XlaFallback, RunsOnTheCpuIsCountedAndSaidOnce) {
  const auto a = normal({3, 4}).to(kDevice);
  ::testing::internal::CaptureStderr();
  expect_close(at::cumprod(a, 1).cpu(), at::cumprod(a.cpu(), 1), "cumprod");
  at::cumprod(a, 0);
  const auto said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("aten::cumprod runs on the CPU"));
  EXPECT_EQ(said.find("aten::cumprod"), said.rfind("aten::cumprod"));
  EXPECT_EQ(counts().on_cpu.at("aten::cumprod"), 2);
}

TEST(XlaFallback, IsAnErrorWhereThatIsWanted) {
  const auto a = normal({3, 4}).to(kDevice);
  set_fallback(Fallback::kError);
  test::expect_error<Error>([&] { at::cumprod(a, 1); },
                            {"aten::cumprod has no lowering", "LOCKSTEP_XLA_FALLBACK=cpu"});
  set_fallback(Fallback::kCpu);
}

torch::nn::Sequential make_network() {
  at::manual_seed(4);
  return torch::nn::Sequential(torch::nn::Linear(8, 16), torch::nn::ReLU(), torch::nn::Linear(16, 16),
                               torch::nn::GELU(), torch::nn::Linear(16, 3));
}

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(const Tensors&)>;

// Losses of `steps` steps, of which the last half have learning rates of their own.
std::vector<double> train(at::Device device, int steps, const MakeOptimizer& make_optimizer) {
  auto network = make_network();
  at::manual_seed(5);
  const auto inputs = normal({32, 8}).to(device), targets = classes(32, 3).to(device);
  network->to(device);
  const auto optimizer = make_optimizer(network->parameters());
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    if (step >= steps / 2)
      for (auto& group : optimizer->param_groups()) group.options().set_lr(0.01 + 0.0001 * step);
    optimizer->zero_grad();
    const auto loss = torch::nn::functional::cross_entropy(network->forward(inputs), targets);
    loss.backward();
    optimizer->step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

void expect_same_training(const MakeOptimizer& make_optimizer) {
  const auto expected = train(at::kCPU, 50, make_optimizer);
  const auto before = fallbacks();
  train(kDevice, 3, make_optimizer);
  const auto compiled = device_programs().counts().compiled;
  const auto got = train(kDevice, 50, make_optimizer);
  EXPECT_EQ(device_programs().counts().compiled, compiled);
  EXPECT_EQ(fallbacks(), before);
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(got[i], expected[i], 1e-5 * expected[i]) << "step " << i;
}

TEST(XlaTraining, BySgdIsThatOfTheCpu) {
  expect_same_training([](const Tensors& parameters) {
    return std::make_unique<torch::optim::SGD>(
        parameters, torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-3));
  });
}

// The same step of an optimizer of ours on the CPU and on the device.
void expect_same_step(const char* name, int kinds, const std::vector<c10::IValue>& settings) {
  at::manual_seed(6);
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
  std::vector<Tensors> lists(5);
  for (int i = 0; i < 2; ++i) {
    for (int kind = 0; kind < 2 + kinds; ++kind)
      lists[static_cast<std::size_t>(kind)].push_back(normal({7, i + 2}).abs());
    lists[4].push_back(at::zeros({}));
  }
  std::vector<Tensors> moved;
  for (const auto& list : lists) moved.push_back(on_device(list));
  const auto before = fallbacks();
  for (int step = 0; step < 5; ++step) {
    for (const auto& all : {lists, moved}) {
      torch::jit::Stack stack;
      for (const auto& list : all) stack.emplace_back(list);
      for (int i = 0; i < 3; ++i) stack.emplace_back();
      stack.insert(stack.end(), settings.begin(), settings.end());
      op.callBoxed(stack);
    }
  }
  EXPECT_EQ(fallbacks(), before);
  for (std::size_t list = 0; list < lists.size(); ++list)
    for (std::size_t i = 0; i < lists[list].size(); ++i)
      expect_close(moved[list][i].cpu(), lists[list][i], name);
}

TEST(XlaTraining, StepsOfOurOptimizersAreThoseOfTheCpu) {
  for (const bool decoupled : {true, false})
    expect_same_step("lockstep::adam_step", 2, {0.01, 0.9, 0.999, 1e-8, 0.1, decoupled, false, true});
  expect_same_step("lockstep::adam_step", 2, {0.01, 0.9, 0.95, 1e-6, 0.0, true, true, false});
  for (const bool nesterov : {true, false})
    expect_same_step("lockstep::sgd_step", 1, {0.05, 0.9, 0.0, 0.01, nesterov, false});
  expect_same_step("lockstep::sgd_step", 1, {0.05, 0.9, 0.3, 0.0, false, true});
  expect_same_step("lockstep::sgd_step", 0, {0.05, 0.0, 0.0, 0.0, false, false});
  for (const bool maximize : {true, false})
    expect_same_step("lockstep::adagrad_step", 1, {0.05, 0.01, 1e-8, 0.01, maximize});
  expect_same_step("lockstep::lion_step", 1, {0.01, 0.9, 0.99, 0.1});
}

TEST(XlaTraining, EndsAProgramWithTheOptimizersStep) {
  const Tensors parameter{at::ones({3}).to(kDevice)}, gradient{at::ones({3}).to(kDevice)}, none;
  synchronize_device(0);
  const auto before = counts().runs;
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("lockstep::sgd_step", "");
  torch::jit::Stack stack{parameter, gradient, none, none, none, {},    {},
                          {},        0.5,      0.0,  0.0,  0.0,  false, false};
  op.callBoxed(stack);
  EXPECT_EQ(counts().runs, before);
  const auto next = parameter[0] * 2;
  EXPECT_EQ(counts().runs, before + 1);
  expect_close(next.cpu(), at::ones({3}), "the next step's");
}

TEST(XlaTraining, MovesModulesThereAndBack) {
  auto network = make_network();
  Tensors before;
  for (const auto& parameter : network->parameters()) before.push_back(parameter.detach().clone());
  network->to(kDevice);
  EXPECT_EQ(network->parameters()[0].device(), kDevice);
  network->to(at::kCPU);
  for (std::size_t i = 0; i < before.size(); ++i)
    expect_close(network->parameters()[i], before[i], "a parameter");
}

// The memory of a parameter that is updated is used again.
TEST(XlaTraining, OverwritesParameters) {
  auto parameter = at::ones({4096}).to(kDevice);
  const auto address_of = [&] {
    const std::lock_guard lock(device_mutex());
    return read(parameter).node->buffer->address();
  };
  synchronize_device(0);
  const auto before = address_of();
  parameter.mul_(3).add_(1);
  synchronize_device(0);
  EXPECT_EQ(address_of(), before);
  EXPECT_EQ(parameter.sum().item<float>(), 4096 * 4.0F);
}

}  // namespace
}  // namespace lockstep::xla
