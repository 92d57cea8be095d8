// The operators by which optimizers step on devices: those that are made of LibTorch's do what the kernels of
// the CPU do. They are registered for CUDA, and called here with tensors of the CPU.
#include <gmock/gmock.h>
#include <lockstep/torch.h>

#include <ATen/core/dispatch/Dispatcher.h>

#include <functional>
#include <optional>
#include <vector>

namespace lockstep {
namespace {

using Tensors = std::vector<at::Tensor>;
using OptionalTensor = std::optional<at::Tensor>;
using Arguments = torch::jit::Stack;

// What an operator works on.
struct Work {
  Tensors parameters, gradients, first, second, steps;
  OptionalTensor grad_scale, found_inf, lr = {};
};

Tensors clones(const Tensors& tensors) {
  Tensors all;
  for (const auto& tensor : tensors) all.push_back(tensor.clone());
  return all;
}

Work copy_of(const Work& work) {
  return {clones(work.parameters), clones(work.gradients), clones(work.first), clones(work.second),
          clones(work.steps),      work.grad_scale,        work.found_inf,     work.lr};
}

Work work_of(int buffers) {
  torch::manual_seed(3);
  Work work;
  for (const auto size : {5, 2000, 1}) {
    work.parameters.push_back(torch::randn({size}));
    work.gradients.push_back(torch::randn({size}));
    if (buffers > 0) work.first.push_back(torch::zeros({size}));
    if (buffers > 1) work.second.push_back(torch::zeros({size}));
    work.steps.push_back(torch::zeros({}));
  }
  return work;
}

void call(const std::string& name, c10::DispatchKey key, const Work& work, const Arguments& settings) {
  const at::NoGradGuard no_grad;
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(("lockstep::" + name).c_str(), "");
  Arguments stack{work.parameters, work.gradients,  work.first,     work.second,
                  work.steps,      work.grad_scale, work.found_inf, work.lr};
  stack.insert(stack.end(), settings.begin(), settings.end());
  op.redispatchBoxed(c10::DispatchKeySet(key), &stack);
}

void expect_close(const Tensors& got, const Tensors& expected, const char* what) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(at::allclose(got[i], expected[i], 1e-5, 1e-6)) << what << " of parameter " << i;
}

// Both take the same steps, each with gradients of its own. The first setting is the learning rate, which may
// come in a tensor.
void expect_same_steps(
    const std::string& name, int buffers, const Arguments& settings,
    const std::function<void(Work&)>& change = [](Work&) {}) {
  auto expected = work_of(buffers);
  change(expected);
  auto got = copy_of(expected);
  for (int step = 0; step < 4; ++step) {
    call(name, c10::DispatchKey::CPU, expected, settings);
    const auto gradients = clones(got.gradients);
    auto others = settings;
    if (step % 2 == 1) {
      got.lr = at::full({}, settings.front().toDouble(), at::kDouble);
      others.front() = 1e6;
    }
    call(name, c10::DispatchKey::CUDA, got, others);
    got.lr.reset();
    if (!got.grad_scale) expect_close(got.gradients, gradients, "the gradient, which nobody asked to scale,");
    for (std::size_t i = 0; i < got.gradients.size(); ++i) {
      expected.gradients[i] = torch::randn_like(expected.gradients[i]);
      got.gradients[i] = expected.gradients[i].clone();
    }
  }
  expect_close(got.parameters, expected.parameters, "values");
  expect_close(got.first, expected.first, "the first buffer");
  expect_close(got.second, expected.second, "the second buffer");
}

const auto kScaled = [](Work& work) { work.grad_scale = at::full({}, 0.25, at::kDouble); };

class AdamStep : public ::testing::TestWithParam<std::tuple<bool, bool, bool>> {};
INSTANTIATE_TEST_SUITE_P(DeviceOperators, AdamStep,
                         ::testing::Combine(::testing::Bool(), ::testing::Bool(), ::testing::Bool()));

TEST_P(AdamStep, TakesTheStepsOfTheCpu) {
  const auto [decoupled, maximize, corrects] = GetParam();
  const Arguments settings{0.01, 0.9, 0.99, 1e-8, 0.1, decoupled, maximize, corrects};
  expect_same_steps("adam_step", 2, settings);
  expect_same_steps("adam_step", 2, settings, kScaled);
}

TEST(DeviceOperators, TakeTheStepsOfSgd) {
  expect_same_steps("sgd_step", 0, {0.1, 0.0, 0.0, 0.01, false, false});
  expect_same_steps("sgd_step", 1, {0.1, 0.9, 0.0, 0.01, false, false});
  expect_same_steps("sgd_step", 1, {0.1, 0.9, 0.0, 0.01, true, true}, kScaled);
  expect_same_steps("sgd_step", 1, {0.1, 0.9, 0.5, 0.01, false, false});
  expect_same_steps("sgd_step", 1, {0.1, 0.9, 0.5, 0.01, false, true}, kScaled);
}

TEST(DeviceOperators, TakeTheStepsOfAdagradAndLion) {
  expect_same_steps("adagrad_step", 1, {0.1, 0.01, 1e-10, 0.01, false});
  expect_same_steps("adagrad_step", 1, {0.1, 0.0, 1e-10, 0.0, true}, kScaled);
  expect_same_steps("lion_step", 1, {0.01, 0.9, 0.99, 0.1});
  expect_same_steps("lion_step", 1, {0.01, 0.9, 0.99, 0.0}, kScaled);
}

TEST(DeviceOperators, LeaveAStepOutWhoseGradientsOverflowed) {
  const std::vector<std::tuple<const char*, int, Arguments>> rows{
      {"adam_step", 2, {0.01, 0.9, 0.99, 1e-8, 0.1, true, false, true}},
      {"sgd_step", 1, {0.1, 0.9, 0.0, 0.01, false, false}},
      {"sgd_step", 1, {0.1, 0.9, 0.5, 0.01, false, false}},
      {"adagrad_step", 1, {0.1, 0.01, 1e-10, 0.01, false}},
      {"lion_step", 1, {0.01, 0.9, 0.99, 0.1}}};
  for (const auto& [name, buffers, settings] : rows) {
    for (const auto key : {c10::DispatchKey::CPU, c10::DispatchKey::CUDA}) {
      auto work = work_of(buffers);
      work.found_inf = at::ones({});
      const auto before = copy_of(work);
      call(name, key, work, settings);
      for (std::size_t i = 0; i < work.parameters.size(); ++i) {
        EXPECT_TRUE(at::equal(work.parameters[i], before.parameters[i])) << name;
        EXPECT_EQ(work.steps[i].item<float>(), 0) << name;
      }
      expect_close(work.first, before.first, name);
    }
  }
}

// Both passes of Lamb; squares of the parameters and of their updates are those of the same device.
void lamb_step(c10::DispatchKey key, const Work& work, bool inside, bool corrects) {
  const at::NoGradGuard no_grad;
  const auto operator_of = [](const char* name) {
    return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
  };
  const Arguments batch{work.parameters, work.gradients,  work.first,     work.second,
                        work.steps,      work.grad_scale, work.found_inf, work.lr};
  auto stack = batch;
  for (const auto& setting : Arguments{0.9, 0.99, 1e-6, inside, 0.1}) stack.push_back(setting);
  operator_of("lockstep::lamb_moments").redispatchBoxed(c10::DispatchKeySet(key), &stack);
  const auto squares = stack.back().toTensor();
  std::vector<std::int64_t> blocks;
  for (const auto& parameter : work.parameters) blocks.push_back((parameter.numel() + 1023) / 1024);
  stack = batch;
  for (const auto& setting :
       Arguments{squares, blocks, work.lr ? 1e6 : 0.01, 0.9, 0.99, 1e-6, inside, 0.1, corrects, 0.01, 10.0})
    stack.push_back(setting);
  operator_of("lockstep::lamb_move").redispatchBoxed(c10::DispatchKeySet(key), &stack);
}

TEST(DeviceOperators, TakeTheStepsOfLamb) {
  for (const bool inside : {false, true}) {
    for (const bool corrects : {false, true}) {
      auto expected = work_of(2);
      expected.grad_scale = at::full({}, 0.25, at::kDouble);
      expected.parameters[2].zero_();  // whose trust ratio is 1
      auto got = copy_of(expected);
      for (int step = 0; step < 4; ++step) {
        if (step == 2) got.lr = at::full({}, 0.01, at::kDouble);
        got.found_inf = step == 3 ? std::optional(at::ones({})) : std::nullopt;
        if (step < 3) lamb_step(c10::DispatchKey::CPU, expected, inside, corrects);
        lamb_step(c10::DispatchKey::CUDA, got, inside, corrects);
      }
      expect_close(got.parameters, expected.parameters, "values");
      expect_close(got.first, expected.first, "the first buffer");
      expect_close(got.second, expected.second, "the second buffer");
      expect_close(got.steps, expected.steps, "the steps");
    }
  }
}

at::Tensor result_of(const char* name, c10::DispatchKey key, const c10::IValue& argument) {
  Arguments stack{argument};
  c10::Dispatcher::singleton()
      .findSchemaOrThrow((std::string("lockstep::") + name).c_str(), "")
      .redispatchBoxed(c10::DispatchKeySet(key), &stack);
  return stack.back().toTensor();
}

TEST(DeviceOperators, SumSquaresByBlocksAndInPairs) {
  for (const std::int64_t size : {1, 7, 1023, 1024, 1025, 9000}) {
    const Tensors gradients{torch::randn({size}), torch::randn({3}), torch::randn({size}, at::kDouble)};
    const auto expected = result_of("square_sums", c10::DispatchKey::CPU, gradients);
    const auto got = result_of("square_sums", c10::DispatchKey::CUDA, gradients);
    EXPECT_TRUE(at::allclose(got, expected)) << size;
    const auto sum = result_of("pairwise_sum", c10::DispatchKey::CUDA, expected);
    EXPECT_EQ(sum.dim(), 0);
    EXPECT_EQ(sum.item<double>(), result_of("pairwise_sum", c10::DispatchKey::CPU, expected).item<double>());
  }
  const auto none = at::empty({0}, at::kDouble);
  EXPECT_EQ(result_of("pairwise_sum", c10::DispatchKey::CUDA, none).item<double>(), 0);
  EXPECT_EQ(result_of("pairwise_sum", c10::DispatchKey::CPU, none).item<double>(), 0);
}

}  // namespace
}  // namespace lockstep
