// Collectives that devices carry out themselves, as NCCL does: posted at once, compared beside, aborted where
// ranks differ or are gone.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/comm/init.h>
#include <lockstep/comm/packed_collectives.h>
#include <lockstep/testing/fork_ranks.h>

#include "sim/installed.h"
#include "support/temporary_folder.h"

namespace lockstep::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::fork_ranks;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The ranks of `comm` again, with devices that are connected.
Communicator join_by_devices(const Communicator& comm, CommOptions options = {}) {
  install({.devices = 4, .seed = static_cast<std::uint64_t>(comm.rank()) + 1});
  register_sim_transport();
  options.backend = "sim";
  options.main_port = std::stoi(*env::get("MASTER_PORT"));
  options.rank = comm.rank();
  options.world_size = comm.size();
  return init_communicator(options);
}

c10::Device own_device(const Communicator& comm) {
  return {kDeviceType, static_cast<c10::DeviceIndex>(comm.rank())};
}

std::string lines(const std::vector<std::string>& reports) {
  std::string text;
  for (const auto& report : reports) text += report + '\n';
  return text;
}

// What the steady calls of `comm` have found, and what the host waited for.
std::string findings() { return lines(take_reports()) + lines(take_host_syncs()); }

// The first collective of a group connects it.
void connect_devices(const Communicator& comm) {
  comm.all_reduce(at::ones({1}, own_device(comm)));
  take_host_syncs();
}

double seconds_since(steady_clock::time_point begin) {
  return std::chrono::duration<double>(steady_clock::now() - begin).count();
}

template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
    return "no error";
  } catch (const std::exception& error) {
    return error.what();
  }
}

class SimTransport : public SimTest {};

void expect_done(const std::vector<testing::RankResult>& ranks) {
  for (const auto& rank : ranks) EXPECT_EQ(rank.result, "") << rank.error;
}

at::Tensor values_of(const Communicator& comm, at::IntArrayRef sizes, at::ScalarType dtype) {
  torch::manual_seed(static_cast<std::uint64_t>(comm.rank()) + 10);
  return (torch::randn(sizes) * 4).to(dtype);
}

// Each reduction of tensors on devices beside that of tensors of the CPU, in one group.
LOCKSTEP_RANK_BODY(sim_transport_sums)(Communicator joined, std::string)->std::string {
  const auto comm = join_by_devices(joined);
  const auto device = own_device(comm);
  connect_devices(comm);
  for (const auto dtype :
       {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kChar, at::kComplexFloat}) {
    for (const auto op :
         {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kProduct, ReduceOp::kBitXor}) {
      const bool is_whole = at::isIntegralType(dtype, false);
      if (op == ReduceOp::kAvg && is_whole) continue;
      if (op == ReduceOp::kBitXor && !is_whole) continue;
      if (at::isComplexType(dtype) && (op == ReduceOp::kMin || op == ReduceOp::kProduct)) continue;
      for (const std::int64_t size : {7, 100000}) {
        const auto host = values_of(comm, {size}, dtype);
        const auto on_device = host.to(device);
        comm.all_reduce(host, op);
        comm.all_reduce(on_device, op);
        EXPECT_TRUE(at::equal(on_cpu(on_device), host))
            << dtype << " " << static_cast<int>(op) << " " << size;
        const auto part = at::empty({size}, host.options()), part_on_device = part.to(device);
        const auto whole = values_of(comm, {comm.size() * size}, dtype);
        comm.reduce_scatter(part, whole, op);
        comm.reduce_scatter(part_on_device, whole.to(device), op);
        EXPECT_TRUE(at::equal(on_cpu(part_on_device), part)) << dtype << " " << static_cast<int>(op);
        const auto rooted = values_of(comm, {size}, dtype), rooted_on_device = rooted.to(device);
        comm.reduce(rooted, comm.size() - 1, op);
        comm.reduce(rooted_on_device, comm.size() - 1, op);
        EXPECT_TRUE(at::equal(on_cpu(rooted_on_device), rooted)) << dtype << " " << static_cast<int>(op);
      }
    }
  }
  return lines(take_reports());
}

TEST_F(SimTransport, SumsHaveTheBitsOfTheCpu) {
  for (const int size : {2, 3, 4}) expect_done(fork_ranks(size, "sim_transport_sums"));
}

LOCKSTEP_RANK_BODY(sim_transport_moves)(Communicator joined, std::string)->std::string {
  const auto comm = join_by_devices(joined);
  const auto device = own_device(comm);
  connect_devices(comm);
  const int rank = comm.rank(), size = comm.size();
  const auto numbers = [&](std::int64_t count, int first) {
    return (at::arange(count) + first).to(device, at::kFloat);
  };
  const auto is = [](const at::Tensor& got, const at::Tensor& expected) {
    EXPECT_TRUE(at::equal(on_cpu(got), expected.to(got.scalar_type()))) << on_cpu(got);
  };
  auto sent = numbers(5, 100 * rank);
  comm.broadcast(sent, 1);
  is(sent, at::arange(5) + 100);
  auto all = at::empty({size, 3}, sim_floats().device(device));
  comm.all_gather(all, numbers(3, 10 * rank));
  is(all[1], at::arange(3) + 10);
  std::vector<at::Tensor> lists;  // rank r gives r + 1 numbers
  for (int each = 0; each < size; ++each) lists.push_back(at::empty({each + 1}, sim_floats().device(device)));
  comm.all_gather(lists, numbers(rank + 1, 10 * rank));
  is(lists[1], at::arange(2) + 10);
  for (auto& tensor : lists) tensor.zero_();
  comm.gather(rank == 0 ? std::span<const at::Tensor>(lists) : std::span<const at::Tensor>(),
              numbers(rank + 1, 20 * rank), 0);
  if (rank == 0) is(lists[1], at::arange(2) + 20);
  std::vector<at::Tensor> parts;
  for (int each = 0; each < size; ++each) parts.push_back(numbers(each + 1, 30 * each));
  const auto part = at::empty({rank + 1}, sim_floats().device(device));
  comm.scatter(part, rank == 0 ? std::span<const at::Tensor>(parts) : std::span<const at::Tensor>(), 0);
  is(part, at::arange(rank + 1) + 30 * rank);
  auto swapped = at::empty({2 * size}, sim_floats().device(device));
  comm.all_to_all(swapped, numbers(2 * size, 100 * rank));
  is(swapped.narrow(0, 2, 2), at::arange(2) + 100 + 2 * rank);
  const auto strided = at::zeros({4, size}, sim_floats().device(device)).t();
  strided.copy_(numbers(4 * size, rank).view({size, 4}));
  comm.all_reduce(strided);
  is(strided, (at::arange(4 * size).view({size, 4}) * size + size * (size - 1) / 2));
  const auto empty = at::empty({0}, sim_floats().device(device));
  comm.all_reduce(empty);
  std::vector<at::Tensor> small{numbers(3, rank), numbers(4, rank), empty};
  all_reduce_coalesced(comm, small);
  is(small[1], at::arange(4) * size + size * (size - 1) / 2);
  comm.barrier();
  EXPECT_EQ(counters().copies_to_host > 0, true);  // of the comparisons above, which read
  return lines(take_reports());
}

TEST_F(SimTransport, MovesWhatItIsTold) {
  for (const int size : {2, 3}) expect_done(fork_ranks(size, "sim_transport_moves"));
}

// Between ranks 0 and 1 1e8 and -1e8 cancel: the order of the sum shows in what is left of 1.
LOCKSTEP_RANK_BODY(sim_transport_fast)(Communicator joined, std::string argument)->std::string {
  const auto comm =
      join_by_devices(joined, {.reduction = argument == "fast" ? Reduction::kFast : Reduction::kOrdered});
  connect_devices(comm);
  const float own[] = {1e8F, -1e8F, 1.0F};
  std::vector<at::Tensor> tensors{at::full({10}, own[comm.rank()], sim_floats().device(own_device(comm)))};
  comm.all_reduce(tensors[0]);
  const auto sum = on_cpu(tensors[0])[0].item<float>();
  tensors[0].fill_(own[comm.rank()]);
  all_reduce_coalesced(comm, tensors);
  EXPECT_EQ(on_cpu(tensors[0])[0].item<float>(), sum);
  return std::to_string(static_cast<int>(sum));
}

TEST_F(SimTransport, SumsInItsOwnOrderWhereThatIsAskedFor) {
  for (const auto& rank : fork_ranks(3, "sim_transport_fast", "ordered"))
    EXPECT_EQ(rank.result, "1") << rank.error;
  for (const auto& rank : fork_ranks(3, "sim_transport_fast", "fast"))
    EXPECT_EQ(rank.result, "0") << rank.error;
}

LOCKSTEP_RANK_BODY(sim_transport_posts)(Communicator joined, std::string)->std::string {
  const auto comm = join_by_devices(joined);
  connect_devices(comm);
  if (comm.rank() == 1) std::this_thread::sleep_for(milliseconds(600));
  const auto tensor = at::full({1000}, comm.rank() + 1, sim_floats().device(own_device(comm)));
  take_host_syncs();
  const auto begin = steady_clock::now();
  comm.all_reduce(tensor);
  const auto work = comm.all_reduce_async(tensor);
  work.wait();
  const auto doubled = tensor * 2;
  EXPECT_LT(seconds_since(begin), 0.4) << "nobody waits for the other rank";
  if (comm.rank() == 0) {
    EXPECT_FALSE(work.is_completed());
  }
  EXPECT_EQ(findings(), "");
  work.wait_host();
  EXPECT_TRUE(work.is_completed());
  EXPECT_EQ(on_cpu(doubled)[3].item<float>(), 12);
  const auto host = at::full({3}, comm.rank());
  comm.all_reduce(host);
  EXPECT_EQ(host[0].item<int>(), 1);
  comm.close();
  return lines(take_reports());
}

TEST_F(SimTransport, PostsAtOnce) { expect_done(fork_ranks(2, "sim_transport_posts")); }

LOCKSTEP_RANK_BODY(sim_transport_groups)(Communicator joined, std::string)->std::string {
  const auto comm = join_by_devices(joined);
  const auto group = *comm.new_group(comm.rank() < 2 ? std::vector{0, 1} : std::vector{2, 3});
  const auto device = own_device(comm);
  for (int round = 0; round < 3; ++round) {
    const auto in_group = at::full({100}, comm.rank() + 1, sim_floats().device(device));
    const auto in_all = in_group.clone();
    group.all_reduce(in_group);
    comm.all_reduce(in_all);
    EXPECT_EQ(on_cpu(in_group)[0].item<float>(), comm.rank() < 2 ? 3 : 7);
    EXPECT_EQ(on_cpu(in_all)[0].item<float>(), 10);
  }
  return lines(take_reports());
}

TEST_F(SimTransport, SubGroupsHaveConnectionsOfTheirOwn) {
  const auto ranks = fork_ranks(4, "sim_transport_groups");
  expect_done(ranks);
}

LOCKSTEP_RANK_BODY(sim_transport_shared)(Communicator joined, std::string)->std::string {
  const auto comm = join_by_devices(joined);
  ::testing::internal::CaptureStderr();
  const auto tensor = at::full({100}, comm.rank() + 1, sim_floats());  // all on sim:0
  comm.all_reduce(tensor);
  comm.all_reduce(tensor);
  const auto warning = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(on_cpu(tensor)[0].item<float>(), 6);
  if (comm.rank() == 0) {
    EXPECT_THAT(
        warning,
        HasSubstr("collectives of devices go through the host's memory: rank 0 and rank 1 share a device"));
    EXPECT_EQ(warning.find("share"), warning.rfind("share")) << "warned of once";
  }
  return lines(take_reports());
}

TEST_F(SimTransport, IsStagedWhereRanksShareADevice) { expect_done(fork_ranks(2, "sim_transport_shared")); }

LOCKSTEP_RANK_BODY(sim_transport_differs)(Communicator joined, std::string argument)->std::string {
  const auto comm = join_by_devices(joined);
  const auto device = own_device(comm);
  connect_devices(comm);
  const auto begin = steady_clock::now();
  const auto error = error_of([&] {
    const bool is_other = comm.rank() == 1;
    if (argument == "size")
      comm.all_reduce_async(at::ones({is_other ? 5 : 4}, device)).wait_host();
    else if (argument == "kind" && is_other)
      comm.broadcast(at::ones({4}, device), 0);
    else if (argument == "device" && is_other)
      comm.all_reduce(at::ones({4}));
    else
      comm.all_reduce_async(at::ones({4}, device)).wait_host();
    while (true) {  // the broadcast is posted, and not waited for: the next call tells
      std::this_thread::sleep_for(milliseconds(20));
      comm.all_reduce(at::ones({4}, device));
    }
  });
  EXPECT_LT(seconds_since(begin), 1.0 * 3);
  EXPECT_THAT(error_of([&] { comm.all_reduce(at::ones({4}, device)); }),
              HasSubstr("do not call the same collective"));
  return error;
}

TEST_F(SimTransport, DifferencesAreNamedOnAllRanks) {
  for (const auto& [what, text] : {std::pair("size", "[5]"), std::pair("kind", "broadcast(root 0)"),
                                   std::pair("device", "[4] on devices")}) {
    for (const auto& rank : fork_ranks(2, "sim_transport_differs", what))
      EXPECT_THAT(rank.result, HasSubstr(text)) << rank.error;
  }
}

// Rank 1 dies in the collective that rank 0 has posted; rank 0 blocks for its device.
LOCKSTEP_RANK_BODY(sim_transport_lost)(Communicator joined, std::string)->std::string {
  const auto comm = join_by_devices(joined);
  const auto device = own_device(comm);
  connect_devices(comm);
  if (comm.rank() == 1) {
    std::this_thread::sleep_for(milliseconds(200));
    ::raise(SIGKILL);
  }
  const auto work = comm.all_reduce_async(at::ones({4}, device));
  const auto begin = steady_clock::now();
  const auto error = error_of([&] { work.wait_host(); });
  EXPECT_LT(seconds_since(begin), 1.2 + 2);
  EXPECT_THAT(error_of([&] { comm.all_reduce(at::ones({4}, device)); }), HasSubstr("rank 1"));
  return error;
}

TEST_F(SimTransport, ALostRankIsNamed) {
  EXPECT_THAT(fork_ranks(2, "sim_transport_lost")[0].result, HasSubstr("rank 1"));
}

LOCKSTEP_RANK_BODY(sim_transport_late)(Communicator joined, std::string argument)->std::string {
  const auto comm = join_by_devices(joined, {.timeout = milliseconds(1500)});
  const auto device = own_device(comm);
  connect_devices(comm);
  if (comm.rank() == 1 && argument == "absent") std::this_thread::sleep_for(milliseconds(4000));
  if (comm.rank() == 1 && argument == "busy")
    launch("a long kernel", device.index(), {}, [] { std::this_thread::sleep_for(milliseconds(4000)); });
  return error_of([&] { comm.all_reduce_async(at::ones({4}, device)).wait_host(); });
}

TEST_F(SimTransport, DeadlinesAreKept) {
  EXPECT_THAT(fork_ranks(2, "sim_transport_late", "absent")[0].result, HasSubstr("rank 1"));
  for (const auto& rank : fork_ranks(2, "sim_transport_late", "busy"))
    EXPECT_THAT(rank.result, HasSubstr("the devices have not carried it out within 1500 ms")) << rank.error;
}

// Rank 1 and its device are busy until rank 0, whose device waits for them, has ended its group and made the
// file.
LOCKSTEP_RANK_BODY(sim_transport_throws)(Communicator joined, std::string file)->std::string {
  const auto await_file = [file] {
    while (!std::filesystem::exists(file)) std::this_thread::sleep_for(milliseconds(5));
  };
  auto begin = steady_clock::now();
  try {
    const auto comm = join_by_devices(joined, {.timeout = milliseconds(20000)});
    const auto device = own_device(comm);
    connect_devices(comm);
    if (comm.rank() == 1) launch("a long kernel", device.index(), {}, await_file);
    comm.all_reduce(at::ones({4}, device));
    if (comm.rank() == 1) await_file();
    std::this_thread::sleep_for(milliseconds(500));  // within which all ranks know of it
    begin = steady_clock::now();
    throw std::runtime_error("no more batches");
  } catch (const std::runtime_error&) {
    EXPECT_LT(seconds_since(begin), 10) << "the group has waited for a device";
  }
  std::ofstream(file) << "over";
  return "";
}

TEST_F(SimTransport, EndsAtOnceWhereARankThrows) {
  const test::TemporaryFolder folder;
  expect_done(fork_ranks(2, "sim_transport_throws", (folder / "over").string()));
}

LOCKSTEP_RANK_BODY(sim_transport_closes)(Communicator joined, std::string)->std::string {
  const auto comm = join_by_devices(joined);
  const auto device = own_device(comm);
  connect_devices(comm);
  if (comm.rank() == 1)
    launch("a long kernel", device.index(), {}, [] { std::this_thread::sleep_for(milliseconds(500)); });
  const auto tensor = at::full({1000}, comm.rank() + 1, sim_floats().device(device));
  comm.all_reduce_async(tensor).wait();
  comm.close();
  EXPECT_EQ(on_cpu(tensor)[3].item<float>(), 3);
  return lines(take_reports());
}

TEST_F(SimTransport, ClosesWhenDevicesAreDone) { expect_done(fork_ranks(2, "sim_transport_closes")); }

}  // namespace
}  // namespace lockstep::sim
