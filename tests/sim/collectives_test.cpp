// Collectives on devices of two ranks: in order where streams wait for them, found where they do not.
#include <c10/core/StreamGuard.h>
#include <lockstep/testing/fork_ranks.h>
#include <unistd.h>

#include "comm/c10d.h"
#include "sim/installed.h"
#include "support/c10d_reducer.h"
#include "support/paths.h"

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace lockstep::sim {
namespace {

namespace nn = torch::nn;
using testing::fork_ranks;

constexpr int kRanks = 2;

std::string lines_of(const std::vector<std::string>& reports) {
  std::string text;
  for (const auto& report : reports) text += report + '\n';
  return text;
}

// c10d's Gloo between the ranks of `comm`. Collective.
c10::intrusive_ptr<c10d::Backend> make_host_backend(const Communicator& comm) {
  using c10d::ProcessGroupGloo;
  static int made = 0;
  const auto name = "sim_store_" + std::to_string(::getpid()) + "_" + std::to_string(made++);
  const auto own_file = test::in_build(name).string();
  const auto file = comm.broadcast_bytes(own_file, 0);
  const auto options = ProcessGroupGloo::Options::create();
  options->devices.push_back(ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  return c10::make_intrusive<ProcessGroupGloo>(c10::make_intrusive<c10d::FileStore>(file, comm.size()),
                                               comm.rank(), comm.size(), options);
}

c10::intrusive_ptr<c10d::Backend> install_with_backend(const Communicator& comm) {
  install({.seed = static_cast<std::uint64_t>(comm.rank()) + 1});
  return make_backend(make_host_backend(comm), 0);
}

// What streams are not ordered for when the wait for a collective is left out, or not.
LOCKSTEP_RANK_BODY(sim_collectives)(Communicator comm, std::string argument)->std::string {
  const bool waits = argument == "waits";
  const auto backend = install_with_backend(comm);
  std::vector<at::Tensor> sums = {at::full({1000}, comm.rank() + 1, sim_floats())};
  auto gathered = at::zeros({2000}, sim_floats()), part = at::zeros({500}, sim_floats());
  auto own = at::full({1000}, comm.rank() + 1, sim_floats());
  const auto then = [&](const c10::intrusive_ptr<c10d::Work>& work, const at::Tensor& output) {
    if (waits) work->wait();
    auto made = output * 2;
    work->wait();
    return made;
  };
  const auto sum = then(backend->allreduce(sums), sums[0]);
  const auto all = then(backend->_allgather_base(gathered, own), gathered);
  const auto scattered = then(backend->_reduce_scatter_base(part, own), part);
  const auto reports = lines_of(take_reports());
  if (!waits) return reports;
  EXPECT_EQ(on_cpu(sum)[7].item<float>(), 6);
  EXPECT_EQ(on_cpu(all)[1500].item<float>(), 4);
  EXPECT_EQ(on_cpu(scattered)[7].item<float>(), 6);
  return reports;
}

class SimCollectives : public SimTest {};

TEST_F(SimCollectives, AreOrderedByWait) {
  for (const auto& rank : fork_ranks(kRanks, "sim_collectives", "waits"))
    EXPECT_EQ(rank.result, "") << rank.error;
}

TEST_F(SimCollectives, AreReportedWhereNobodyWaits) {
  for (const auto& rank : fork_ranks(kRanks, "sim_collectives", "forgets")) {
    for (const auto* const name : {"all_reduce", "all_gather", "reduce_scatter"})
      EXPECT_THAT(rank.result,
                  ::testing::HasSubstr("read before ready: aten::mul.out reads on sim:0 stream 0 what " +
                                       std::string(name) + " writes on sim:0 stream 15"))
          << rank.error;
  }
}

// A graph with a collective in it: replayed by both ranks, it communicates.
LOCKSTEP_RANK_BODY(sim_captured)(Communicator comm, std::string)->std::string {
  const auto backend = install_with_backend(comm);
  std::vector<at::Tensor> values = {at::full({1000}, comm.rank() + 1, sim_floats())};
  Graph graph;
  graph.begin();
  backend->allreduce(values)->wait();
  values[0].mul_(3);
  graph.end();
  EXPECT_EQ(on_cpu(values[0])[7].item<float>(), comm.rank() + 1);
  for (int i = 0; i < 3; ++i) graph.replay();
  EXPECT_EQ(on_cpu(values[0])[7].item<float>(), (1 + 2) * 3 * 6 * 6);
  return lines_of(take_reports());
}

TEST_F(SimCollectives, AreReplayedByGraphs) {
  for (const auto& rank : fork_ranks(kRanks, "sim_captured")) EXPECT_EQ(rank.result, "") << rank.error;
}

// Gradients of c10d's own engine, averaged over ranks, against one process that adds them in the same order.
LOCKSTEP_RANK_BODY(sim_reducer)(Communicator comm, std::string)->std::string {
  const auto backend = install_with_backend(comm);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(comm.rank(), comm.size());
  group->setBackend(kDeviceType, c10d::ProcessGroup::BackendType::CUSTOM, backend);
  group->setBackend(c10::kCPU, c10d::ProcessGroup::BackendType::GLOO, make_host_backend(comm));
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  torch::manual_seed(0);
  const auto make = [] { return nn::Sequential(nn::Linear(20, 50), nn::ReLU(), nn::Linear(50, 5)); };
  auto net = make();
  torch::manual_seed(0);
  auto reference = make();
  net->to(kSim);
  const auto parameters = net->parameters();
  std::vector<std::vector<std::size_t>> buckets;
  for (auto i = parameters.size(); i-- > 0;) buckets.push_back({i});
  const auto reducer = lockstep::test::make_reducer({.parameters = parameters,
                                                     .buckets = buckets,
                                                     .process_group = group,
                                                     .bucket_bytes_cap = 1 << 20,
                                                     .first_bucket_bytes_cap = 1 << 20,
                                                     .gradient_as_bucket_view = true,
                                                     .names = {}});
  torch::manual_seed(1);
  const auto data = at::randn({8, 20});
  const auto own = data.slice(0, comm.rank() * 4, comm.rank() * 4 + 4).to(kSim);
  for (int step = 0; step < 4; ++step) {
    net->zero_grad(/*set_to_none=*/false);
    reducer->prepare_for_forward();
    if (step == 1 && reducer->rebuild_buckets())
      take_host_syncs();  // ranks then agree on the order, through the host
    const auto loss = net->forward(own).pow(2).mean();
    reducer->prepare_for_backward({});
    loss.backward();
    const at::NoGradGuard no_grad;
    for (auto parameter : parameters) parameter.add_(parameter.grad(), -0.1);
  }
  const auto syncs = take_host_syncs();
  for (int step = 0; step < 4; ++step) {
    std::vector<at::Tensor> sums;
    for (int rank = 0; rank < kRanks; ++rank) {
      reference->zero_grad();
      reference->forward(data.slice(0, rank * 4, rank * 4 + 4)).pow(2).mean().backward();
      std::size_t i = 0;
      for (const auto& parameter : reference->parameters()) {
        if (rank == 0)
          sums.push_back(parameter.grad() / kRanks);
        else
          sums[i++] += parameter.grad() / kRanks;
      }
    }
    const at::NoGradGuard no_grad;
    std::size_t i = 0;
    for (auto parameter : reference->parameters()) parameter.add_(sums[i++], -0.1);
  }
  for (std::size_t i = 0; i < parameters.size(); ++i)
    EXPECT_TRUE(torch::equal(on_cpu(parameters[i].detach()), reference->parameters()[i].detach())) << i;
  return lines_of(take_reports()) + lines_of(syncs);
}

TEST_F(SimCollectives, ServeTheReducerOfC10d) {
  for (const auto& rank : fork_ranks(kRanks, "sim_reducer")) EXPECT_EQ(rank.result, "") << rank.error;
}

}  // namespace
}  // namespace lockstep::sim
