// What operators of LibTorch do on the devices, beside computing: waits, random numbers, autocast, refusals.
#include <ATen/autocast_mode.h>

#include "sim/installed.h"

namespace lockstep::sim {
namespace {

namespace nn = torch::nn;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SimOperators : public SimTest {};

std::string refusal(const std::function<void()>& call) try {
  call();
  return "";
} catch (const c10::Error& error) {
  return error.what_without_backtrace();
}

TEST_F(SimOperators, MakeTheHostWaitByName) {
  const auto tensor = at::arange(3, sim_floats());
  EXPECT_EQ(tensor.sum().item<float>(), 3);
  EXPECT_EQ(tensor.nonzero().size(0), 2);
  EXPECT_TRUE(at::equal(tensor, tensor));
  on_cpu(tensor);
  stream(0, 0).synchronize();
  EXPECT_THAT(take_host_syncs(),
              ElementsAre("item()", "aten::nonzero", "aten::equal", "copy to the host", "synchronizeStream"));
}

TEST_F(SimOperators, OfClippingDoNotMakeItWait) {
  const std::vector<at::Tensor> tensors = {at::ones({3}, sim_floats()), at::ones({5}, sim_floats())};
  at::_foreach_mul_(tensors, 3.0);
  const auto norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(tensors, 2)), 2);
  at::_foreach_mul_(tensors, at::clamp_max(1.0 / (norm + 1e-6), 1.0));
  EXPECT_THAT(take_host_syncs(), IsEmpty());
  EXPECT_NEAR(on_cpu(tensors[1])[0].item<float>(), 1 / std::sqrt(8.0), 1e-6);
}

TEST_F(SimOperators, DrawAgainWhatTheStateOfTheGeneratorSays) {
  auto generator = at::globalContext().defaultGenerator(kSim);
  generator.set_current_seed(5);
  const auto state = generator.get_state();
  EXPECT_EQ(state.nbytes(), 16u);
  const auto draw = [] {
    const auto numbers = at::rand({50}, sim_floats());
    return on_cpu(at::stack({numbers, at::dropout(numbers, 0.5, true), at::randn_like(numbers)}));
  };
  const auto of_host = at::detail::getDefaultCPUGenerator().get_state();
  const auto first = draw(), second = draw();
  generator.set_state(state);
  EXPECT_TRUE(torch::equal(draw(), first));
  EXPECT_FALSE(torch::equal(first, second));
  EXPECT_TRUE(torch::equal(at::detail::getDefaultCPUGenerator().get_state(), of_host));
}

TEST_F(SimOperators, DropWithTheirMaskInBackward) {
  auto input = at::ones({1000}, sim_floats()).requires_grad_();
  const auto output = at::dropout(input, 0.25, true);
  output.sum().backward();
  EXPECT_TRUE(torch::equal(on_cpu(input.grad()), on_cpu(output.detach())));
  EXPECT_NEAR(on_cpu(output.detach()).mean().item<float>(), 1, 0.1);
}

TEST_F(SimOperators, ComputeInLowerTypesUnderAutocast) {
  const auto weight = at::randn({10, 20}, sim_floats()), input = at::randn({4, 20}, sim_floats());
  at::autocast::set_autocast_enabled(kDeviceType, true);
  at::autocast::set_autocast_dtype(kDeviceType, at::kBFloat16);
  const auto product = at::linear(input, weight);
  const auto probabilities = at::softmax(product, 1);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(kDeviceType, false);
  EXPECT_EQ(product.scalar_type(), at::kBFloat16);
  EXPECT_EQ(probabilities.scalar_type(), at::kFloat);
  const auto low = [](const at::Tensor& tensor) { return on_cpu(tensor).to(at::kBFloat16); };
  EXPECT_TRUE(torch::equal(on_cpu(product), at::linear(low(input), low(weight))));
}

TEST_F(SimOperators, RefuseTensorsOfTwoDevices) {
  const auto here = at::ones({8}, sim_floats());
  const auto there = at::ones({8}, sim_floats().device(c10::Device(kDeviceType, 1)));
  EXPECT_THAT(refusal([&] { here + there; }), HasSubstr("same device"));
  EXPECT_THAT(refusal([&] { here + at::ones({8}); }), HasSubstr("same device"));
  EXPECT_EQ(on_cpu(here + at::ones({}))[0].item<float>(), 2);
  auto on_host = at::ones({});
  EXPECT_THAT(refusal([&] { at::_amp_update_scale_(on_host, on_host, here[0], 2, 0.5, 1); }),
              HasSubstr("is written"));
}

TEST_F(SimOperators, ThatFailReportLater) {
  const auto table = at::ones({4, 2}, sim_floats());
  const auto index = at::full({3}, 9, at::TensorOptions(kSim).dtype(at::kLong));
  const auto rows = table.index_select(0, index);
  EXPECT_THAT(refusal([&] { on_cpu(rows); }), HasSubstr("a kernel failed earlier"));
}

TEST_F(SimOperators, OrderBackwardOverStreams) {
  auto weight = at::randn({64, 64}).to(kSim).requires_grad_();
  const auto input = at::randn({8, 64}).to(kSim);
  order(stream(0, 0), stream(0, 5));
  at::Tensor hidden;
  {
    const c10::StreamGuard guard(stream(0, 5));
    hidden = input.matmul(weight).tanh();
  }
  order(stream(0, 5), stream(0, 0));
  hidden.matmul(weight).sum().backward();
  auto on_host = on_cpu(weight.detach()).requires_grad_();
  on_cpu(input).matmul(on_host).tanh().matmul(on_host).sum().backward();
  EXPECT_TRUE(torch::equal(on_cpu(weight.grad()), on_host.grad()));
  EXPECT_THAT(take_reports(), IsEmpty());
}

}  // namespace
}  // namespace lockstep::sim
