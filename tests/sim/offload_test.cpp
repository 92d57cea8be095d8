// What leaves a device: activations that are offloaded to the host or to disk, records of what travels
// quantised; and what monitors say of memory.
#include <filesystem>
#include <limits>

#include <lockstep/device/torch_device.h>
#include <lockstep/parallel/activations.h>

#include "device/pinned_staging.h"
#include "parallel/sharded/quantized_record.h"
#include "sim/installed.h"
#include "sim/sim_accelerator.h"
#include "support/temporary_folder.h"

namespace lockstep::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

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

// What the device holds after it has been to a file and back, in blocks that are smaller than the tensors.
TEST_F(SimOffload, MemoryThatIsNotPageLockedIsReachedThroughTwoBlocks) {
  detail::PinnedStaging staging(/*block_bytes=*/1024);
  std::vector<at::Tensor> expected, on_device, on_host, again;
  for (const std::int64_t elements : {1, 100, 255, 256, 257, 1000, 3}) {
    expected.push_back(at::randn({elements}));
    on_device.push_back(on_sim(expected.back()));
    on_host.push_back(at::zeros({elements}));
  }
  take_host_syncs();
  for (std::size_t i = 0; i < expected.size(); ++i) staging.to_host(on_device[i].mul(2), on_host[i]);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    again.push_back(at::empty_like(on_device[i]));
    staging.to_device(on_host[i], again[i]);  // some of them are under way
    on_host[i].zero_();
  }
  EXPECT_THAT(take_host_syncs(), Not(IsEmpty()));
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(at::equal(on_cpu(again[i]), expected[i] * 2)) << i;
}

TEST_F(SimOffload, BlocksThatAreNotFullMakeTheHostWaitForNothing) {
  detail::PinnedStaging staging;
  const auto source = on_sim(at::ones({1000}));
  const auto target = at::zeros({1000}), other = at::zeros({1000}), back = at::empty_like(source);
  take_host_syncs();
  for (int i = 0; i < 10; ++i) {
    staging.to_host(source, target);
    staging.to_device(other.fill_(i), back);
  }
  EXPECT_THAT(take_host_syncs(), IsEmpty());
  staging.land();
  EXPECT_THAT(take_host_syncs(), ElementsAre("synchronizeEvent"));
  EXPECT_TRUE(at::equal(target, at::ones({1000})));
  EXPECT_TRUE(at::equal(on_cpu(back), at::full({1000}, 9.0F)));
}

TEST_F(SimOffload, MemoryOfAnotherTypeIsConvertedOnTheHost) {
  detail::PinnedStaging staging;
  const auto values = at::randn({300});
  const auto back = at::empty({300}, sim_floats().dtype(at::kHalf));
  staging.to_device(values, back);
  EXPECT_TRUE(at::equal(on_cpu(back), values.to(at::kHalf)));
  const auto target = at::zeros({300});
  staging.to_host(back, target);
  staging.land();
  EXPECT_TRUE(at::equal(target, values.to(at::kHalf).to(at::kFloat)));
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

TEST_F(SimOffload, ActivationsOfADirectoryAreOnDiskUntilBackwardAndGradientsTheSame) {
  const auto expected = pass_through(deep_network());
  test::TemporaryFolder folder;
  auto net = deep_network();
  offload_activations(*net, {.directory = folder.path(), .min_bytes = 1});
  EXPECT_FALSE(std::filesystem::is_empty(folder.path()));
  for (int step = 0; step < 2; ++step) {
    net->zero_grad();
    const auto found = pass_through(net);
    EXPECT_LE(found.syncs.size(), 1U);  // backward waits for what forward has sent last
    EXPECT_LT(found.kept_bytes, expected.kept_bytes / 3);
    ASSERT_EQ(found.gradients.size(), expected.gradients.size());
    for (std::size_t i = 0; i < found.gradients.size(); ++i)
      EXPECT_TRUE(at::equal(found.gradients[i], expected.gradients[i])) << i;
  }
}

at::Tensor bits_of(const at::Tensor& floats) { return on_cpu(floats).view(at::kInt); }

// Blocks of every kind: with what is not finite, or too small, and the last part of one.
at::Tensor various_values() {
  auto values = at::randn({3000}) * at::arange(3000).sub(1500).mul(0.02).exp();
  values[300] = std::numeric_limits<float>::infinity();
  values[700] = std::numeric_limits<float>::quiet_NaN();
  values.narrow(0, 1024, 256).zero_();
  values.narrow(0, 1280, 256).mul_(1e-37);
  return values;
}

TEST_F(SimOffload, RecordsOfADeviceHaveTheBitsOfTheCpu) {
  const auto values = various_values();
  for (const auto bits : {detail::CodeBits::k4, detail::CodeBits::k8}) {
    for (const std::int64_t elements : {1, 255, 256, 257, 3000}) {
      const detail::RecordFormat format(elements, bits);
      const auto own = values.narrow(0, 0, elements);
      const auto expected = at::zeros({format.bytes()}, at::kByte), read = at::empty({elements});
      const auto sums = at::ones({elements}), half = at::empty({elements}, at::kHalf);
      format.write(own, expected);
      format.read(expected, read);
      format.read(expected, half);
      format.add(expected, sums);
      const auto source = on_sim(own), record = at::empty({format.bytes()}, sim_floats().dtype(at::kByte));
      const auto sim_read = at::empty({elements}, sim_floats()),
                 sim_sums = at::ones({elements}, sim_floats());
      const auto sim_half = at::empty({elements}, sim_floats().dtype(at::kHalf));
      take_host_syncs();
      format.write(source, record);
      format.read(record, sim_read);
      format.read(record, sim_half);
      format.add(record, sim_sums);
      EXPECT_THAT(take_host_syncs(), IsEmpty());
      EXPECT_TRUE(at::equal(on_cpu(record), expected)) << elements;
      EXPECT_TRUE(at::equal(bits_of(sim_read), bits_of(read))) << elements;
      EXPECT_TRUE(at::equal(on_cpu(sim_half).view(at::kShort), half.view(at::kShort))) << elements;
      EXPECT_TRUE(at::equal(bits_of(sim_sums), bits_of(sums))) << elements;
    }
  }
}

TEST_F(SimOffload, PartsOfRecordsAreThoseOfTheWhole) {
  const auto values = on_sim(various_values());
  for (const auto bits : {detail::CodeBits::k4, detail::CodeBits::k8}) {
    const detail::RecordFormat format(3000, bits);
    const auto whole = at::empty({format.bytes()}, sim_floats().dtype(at::kByte)),
               parts = at::empty_like(whole);
    const auto read = at::empty({3000}, sim_floats()), part = at::empty({2488}, sim_floats());
    format.write(values, whole);
    format.write_part(values.narrow(0, 512, 2488), parts, 512);
    format.write_part(values.narrow(0, 0, 512), parts, 0);
    format.read(whole, read);
    format.read_part(whole, 512, part);
    EXPECT_TRUE(at::equal(on_cpu(parts), on_cpu(whole)));
    EXPECT_TRUE(at::equal(bits_of(part), bits_of(read.narrow(0, 512, 2488))));
  }
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
