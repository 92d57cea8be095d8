// What is offloaded from a device to the host: activations, and what monitors say of memory.
#include <lockstep/device/torch_device.h>
#include <lockstep/parallel/activations.h>

#include "sim/installed.h"
#include "sim/sim_accelerator.h"

namespace lockstep::sim {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SimOffload : public SimDeviceTest {};

constexpr std::int64_t kWidth = 256;
constexpr int kLayers = 6;

torch::nn::Sequential deep_network() {
  torch::manual_seed(3);
  torch::nn::Sequential net;
  for (int layer = 0; layer < kLayers; ++layer) {
    net->push_back(torch::nn::Linear(kWidth, kWidth));
    net->push_back(torch::nn::Functional([](const at::Tensor& x) { return torch::tanh(x); }));
  }
  net->to(kSim);
  return net;
}

struct Pass {
  std::vector<at::Tensor> gradients;
  std::int64_t kept_bytes = 0;  // on the device, from forward to backward
  std::vector<std::string> syncs = {};
};

Pass pass_through(torch::nn::Sequential net) {
  const auto input = on_sim(at::full({128, kWidth}, 0.01));
  const auto before = memory_of(kSim).allocated;
  take_host_syncs();
  const auto loss = net->forward(input).square().sum();
  Pass pass{.gradients = {}, .kept_bytes = memory_of(kSim).allocated - before};
  loss.backward();
  pass.syncs = take_host_syncs();
  for (const auto& parameter : net->parameters()) pass.gradients.push_back(on_cpu(parameter.grad()));
  return pass;
}

TEST_F(SimOffload, ActivationsAreOnTheHostUntilBackwardAndGradientsTheSame) {
  const auto expected = pass_through(deep_network());
  auto net = deep_network();
  offload_activations(*net, {.min_bytes = 1});
  const auto found = pass_through(net);
  EXPECT_THAT(found.syncs, IsEmpty());
  EXPECT_LT(found.kept_bytes, expected.kept_bytes / 3);
  ASSERT_EQ(found.gradients.size(), expected.gradients.size());
  for (std::size_t i = 0; i < found.gradients.size(); ++i)
    EXPECT_TRUE(at::equal(found.gradients[i], expected.gradients[i])) << i;
}

TEST_F(SimOffload, ActivationsSurviveTwoBackwardPassesOfOneGraph) {
  auto net = deep_network();
  offload_activations(*net, {.min_bytes = 1});
  const auto loss = net->forward(on_sim(at::full({16, kWidth}, 0.01))).square().sum();
  loss.backward({}, /*retain_graph=*/true);
  const auto once = on_cpu(net->parameters()[0].grad()).clone();
  loss.backward();
  EXPECT_TRUE(at::equal(on_cpu(net->parameters()[0].grad()), once * 2));
}

TEST_F(SimOffload, MemoryHasTheNamesOfTorchCuda) {
  const auto tensor = at::ones({1024}, sim_floats());
  std::map<std::string, double> stats;
  for (const auto& [name, value] : memory_stats(kSim)) stats.emplace(name, value);
  EXPECT_EQ(stats.at("allocated_bytes.all.current"), memory_of(kSim).allocated);
  EXPECT_EQ(stats.at("reserved_bytes.all.current"), memory_of(kSim).reserved);
  EXPECT_TRUE(stats.contains("num_ooms"));
  EXPECT_THAT(memory_stats(at::kCPU), IsEmpty());
}

}  // namespace
}  // namespace lockstep::sim
