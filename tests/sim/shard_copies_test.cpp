// Copies of shards and gradients that lie on the host, as the clocks of streams see them: beside what is
// computed, and never before what they need.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <lockstep/fabric/fabric.h>
#include <lockstep/optim/optimizer_factory.h>

#include "sim/installed.h"
#include "support/temporary_folder.h"

namespace lockstep::sim {
namespace {

class SimShardCopies : public SimDeviceTest {};

constexpr int kUnits = 6;
constexpr std::int64_t kRows = 64;

torch::nn::Sequential units() {
  torch::manual_seed(3);
  torch::nn::Sequential net;
  for (int unit = 0; unit < kUnits; ++unit) net->push_back(torch::nn::Linear(kRows, kRows));
  return net;
}

struct Run {
  std::map<std::string, at::Tensor> weights;
  std::vector<Issued> last_step;  // on a device
  std::vector<std::string> syncs;
};

Run train(const std::string& accelerator, const Fsdp& strategy) {
  const bool on_sim = accelerator == "sim";
  FabricOptions options{.accelerator = accelerator, .strategy = strategy};
  if (on_sim) options.devices = Devices{0};
  Fabric fabric(options);
  auto [model, optimizer] = fabric.setup(units(), AdamW{.lr = 1e-2});
  Run run;
  for (int step = 0; step < 4; ++step) {
    if (on_sim) {
      take_host_syncs();
      begin_trace();
    }
    optimizer->zero_grad();
    fabric.backward(model->forward(fabric.to_device(at::ones({4, kRows}))).square().sum());
    optimizer->step();
    if (!on_sim) continue;
    run.syncs = take_host_syncs();
    run.last_step = take_trace();
  }
  for (const auto& [name, tensor] : fabric.strategy().module_state(*model))
    run.weights[name] = on_cpu(tensor.detach()).clone();
  return run;
}

// How many copies of this kind are beside a product of matrices that was issued after them.
std::int64_t beside_products(const std::vector<Issued>& kernels, const std::string& copy) {
  std::int64_t count = 0;
  for (auto kernel = kernels.begin(); kernel != kernels.end(); ++kernel) {
    if (kernel->op != copy) continue;
    count += std::any_of(kernel, kernels.end(), [&](const Issued& later) {
      return later.op.find("mm") != std::string::npos && may_overlap(*kernel, later);
    });
  }
  return count;
}

void expect_copies_beside_products(const Fsdp& strategy) {
  const auto expected = train("cpu", {.auto_wrap_policy = strategy.auto_wrap_policy});
  const auto found = train("sim", strategy);
  ASSERT_EQ(found.weights.size(), expected.weights.size());
  for (const auto& [name, weight] : expected.weights)
    EXPECT_TRUE(at::equal(found.weights.at(name), weight)) << name;
  EXPECT_EQ(found.syncs.size(), 1U);  // for the last of the gradients
  // Each unit but the first of forward, and those that backward gathers again.
  EXPECT_GE(beside_products(found.last_step, "copy to the device"), kUnits - 1 + kUnits - 3);
  // Each but the gradients that come last.
  EXPECT_GE(beside_products(found.last_step, "copy to the host"), kUnits - 3);
}

TEST_F(SimShardCopies, GoBesideWhatIsComputed) {
  expect_copies_beside_products({.auto_wrap_policy = "Linear", .cpu_offload = true});
}

TEST_F(SimShardCopies, OfFilesGoBesideWhatIsComputed) {
  const test::TemporaryFolder folder;
  expect_copies_beside_products(
      {.auto_wrap_policy = "Linear", .cpu_offload = true, .offload_dir = folder.path()});
}

TEST_F(SimShardCopies, OfSeveralUnitsAreNeverOnTheDeviceAtOnce) {
  const auto peak_of = [](bool offloads) {
    reset_peak_memory(kSim);
    const auto before = memory_of(kSim).allocated;
    train("sim", {.auto_wrap_policy = "Linear", .cpu_offload = offloads});
    return memory_of(kSim).peak_allocated - before;
  };
  EXPECT_LT(peak_of(true), peak_of(false) / 2);
}

}  // namespace
}  // namespace lockstep::sim
