// Ranks of several hosts: sums inside a host first, and between hosts once for each.
#include "comm/collectives/two_level_collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/testing/fork_ranks.h>

#include "comm/algorithms/reduce_rows.h"
#include "comm/socket_ranks.h"
#include "comm/unlike_values.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using detail::Collective;
using detail::CollectiveKind;
using detail::GroupSegments;
using detail::SegmentAddress;
using detail::SharedSegment;
using detail::SocketTransport;
using detail::TwoLevelCollectives;
using test::has_bits;
using test::reduced_values;
using test::unlike_values;
using testing::fork_ranks;
using ::testing::StartsWith;

/// Threads that count as the ranks of hosts with `members` each.
class Hosts {
 public:
  Hosts(int ranks, int members) : transports_(test::socket_ranks(ranks)) {
    std::vector<SharedSegment> own;
    std::vector<SegmentAddress> addresses;
    for (int rank = 0; rank < ranks; ++rank) {
      own.push_back(SharedSegment::create().value());
      addresses.push_back(own.back().address());
    }
    for (int rank = 0; rank < ranks; ++rank) {
      const auto first = addresses.begin() + rank / members * members;
      const std::vector<SegmentAddress> of_host(first, first + members);
      std::vector<SharedSegment> opened;
      for (const auto& address : of_host) opened.push_back(SharedSegment::open(address).value());
      segments_.push_back(std::make_unique<GroupSegments>(std::move(opened), of_host, rank % members));
    }
  }

  using Perform = std::function<void(const Collective&)>;
  void run(const std::function<void(int rank, const Perform&)>& body) {
    test::run_each(transports_, [&](SocketTransport& transport) {
      TwoLevelCollectives collectives;
      collectives.open(transport, *segments_[static_cast<std::size_t>(transport.rank())]);
      body(transport.rank(), [&](const Collective& collective) {
        EXPECT_TRUE(collectives.take(collective));
        collectives.perform(collective, [](int, detail::Flag& flag, std::uint64_t value) {
          while (!sleep_until(flag, value)) continue;
        });
      });
    });
  }

  int size() const { return static_cast<int>(transports_.size()); }
  /// What the ranks of a host have sent to those of others.
  std::uint64_t bytes_from(int host) const {
    const auto members = static_cast<std::size_t>(segments_[0]->size());
    std::uint64_t bytes = 0;
    for (std::size_t member = 0; member < members; ++member)
      bytes += transports_[static_cast<std::size_t>(host) * members + member]->bytes_sent();
    return bytes;
  }

 private:
  test::SocketRanks transports_;
  std::vector<std::unique_ptr<GroupSegments>> segments_;
};

struct Shape {
  int ranks, members;
};
class TwoLevels : public ::testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Hosts, TwoLevels, ::testing::Values(Shape{4, 2}, Shape{6, 2}, Shape{8, 4}),
                         [](const auto& test) {
                           return std::to_string(test.param.ranks) + "by" +
                                  std::to_string(test.param.members);
                         });

TEST_P(TwoLevels, SumsHaveTheBitsOfTheTree) {
  Hosts hosts(GetParam().ranks, GetParam().members);
  hosts.run([&](int rank, const auto& perform) {
    for (const auto dtype :
         {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble, at::kChar, at::kLong, at::kComplexFloat}) {
      for (const auto op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProduct}) {
        if (at::isIntegralType(dtype, true) && op == ReduceOp::kAvg) continue;
        for (const std::int64_t numel : {1, 3, 50'001, 300'000}) {
          const auto sum = unlike_values(rank, numel, dtype);
          perform({.kind = CollectiveKind::kAllReduce, .output = sum, .op = op});
          EXPECT_TRUE(has_bits(sum, reduced_values(hosts.size(), numel, dtype, op))) << dtype << " " << numel;
        }
      }
    }
  });
}

TEST_P(TwoLevels, AreScatteredAndGathered) {
  Hosts hosts(GetParam().ranks, GetParam().members);
  hosts.run([&](int rank, const auto& perform) {
    for (const auto dtype : {at::kFloat, at::kHalf}) {
      for (const std::int64_t part : {1, 7, 99'999}) {
        const auto numel = part * hosts.size();
        const auto input = unlike_values(rank, numel, dtype), output = at::zeros({part}, dtype);
        perform({.kind = CollectiveKind::kReduceScatter, .output = output, .input = input});
        const auto whole = reduced_values(hosts.size(), numel, dtype, ReduceOp::kSum);
        EXPECT_TRUE(has_bits(output, whole.narrow(0, rank * part, part).clone())) << dtype << " " << part;
        EXPECT_TRUE(has_bits(input, unlike_values(rank, numel, dtype)));
        const auto all = at::zeros({numel}, dtype);
        perform({.kind = CollectiveKind::kAllGather, .output = all, .input = output});
        EXPECT_TRUE(has_bits(all, whole)) << dtype << " " << part;
      }
    }
  });
}

// Tensors that are summed in several parts one after the other.
TEST(TwoLevelSums, OfLargeTensorsAreRight) {
  Hosts hosts(4, 2);
  hosts.run([&](int rank, const auto& perform) {
    constexpr std::int64_t numel = 2'500'003, slice = 600'003;
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      const auto sum = unlike_values(rank, numel, dtype);
      perform({.kind = CollectiveKind::kAllReduce, .output = sum, .op = ReduceOp::kAvg});
      EXPECT_TRUE(has_bits(sum, reduced_values(4, numel, dtype, ReduceOp::kAvg)));
      const auto output = at::zeros({slice}, dtype);
      const auto input = unlike_values(rank, 4 * slice, dtype);
      perform({.kind = CollectiveKind::kReduceScatter, .output = output, .input = input});
      const auto whole = reduced_values(4, 4 * slice, dtype, ReduceOp::kSum);
      EXPECT_TRUE(has_bits(output, whole.narrow(0, rank * slice, slice).clone()));
    }
  });
}

// On one level each of the two ranks of a host would send as much as both do here.
TEST(TwoLevelTraffic, OfAHostIsWhatItsSumTakes) {
  constexpr std::int64_t numel = 1 << 20;
  Hosts hosts(4, 2);
  hosts.run([](int rank, const auto& perform) {
    perform({.kind = CollectiveKind::kAllReduce, .output = unlike_values(rank, numel, at::kFloat)});
  });
  for (const int host : {0, 1}) EXPECT_EQ(hosts.bytes_from(host), 2 * numel * 4 / 2);
}

TEST(HostLayout, IsOfNodesOfTheTree) {
  using detail::members_of_each_host;
  using Machines = std::vector<std::uint64_t>;
  EXPECT_EQ(members_of_each_host(Machines{7, 7, 7}), 3);
  EXPECT_EQ(members_of_each_host(Machines{7, 7, 9, 9}), 2);
  EXPECT_EQ(members_of_each_host(Machines{7, 7, 9, 9, 3, 3}), 2);
  EXPECT_EQ(members_of_each_host(Machines{7, 7, 7, 7, 9, 9, 9, 9}), 4);
  EXPECT_EQ(members_of_each_host(Machines{7, 9}), 0);              // nobody shares anything
  EXPECT_EQ(members_of_each_host(Machines{7, 9, 7, 9}), 0);        // in turns
  EXPECT_EQ(members_of_each_host(Machines{7, 7, 7, 9, 9, 9}), 0);  // three are no node
  EXPECT_EQ(members_of_each_host(Machines{7, 7, 9}), 0);           // uneven
  EXPECT_EQ(members_of_each_host(Machines{7, 7, 9, 9, 7, 7}), 0);
  EXPECT_EQ(members_of_each_host(Machines{0, 0, 9, 9}), 0);  // the first ones have no segment
}

// Whole jobs, whose ranks count as those of two hosts.

std::string sum_on_hosts(const Communicator& comm, int host) {
  env::set("LOCKSTEP_TEST_HOST", std::to_string(host));
  for (int i = 0; i < 6; ++i) comm.barrier();  // segments are open by then
  for (const std::int64_t numel : {5, 70'000, 1'000'001}) {
    const auto sum = unlike_values(comm.rank(), numel, at::kHalf);
    comm.all_reduce(sum, ReduceOp::kAvg);
    if (!has_bits(sum, reduced_values(comm.size(), numel, at::kHalf, ReduceOp::kAvg))) return "a wrong sum";
    const auto all = at::zeros({comm.size() * numel}, at::kFloat);
    comm.all_gather(all, unlike_values(comm.rank(), numel, at::kFloat));
    if (!has_bits(all.narrow(0, numel, numel).clone(), unlike_values(1, numel, at::kFloat)))
      return "a wrong gather";
    comm.broadcast(sum, 1);
  }
  return "right";
}

LOCKSTEP_RANK_BODY(on_two_hosts)(Communicator comm, std::string)->std::string {
  return sum_on_hosts(comm, comm.rank() / 2);
}
LOCKSTEP_RANK_BODY(on_hosts_in_turns)(Communicator comm, std::string)->std::string {
  return sum_on_hosts(comm, comm.rank() % 2);
}
LOCKSTEP_RANK_BODY(on_uneven_hosts)(Communicator comm, std::string)->std::string {
  return sum_on_hosts(comm, comm.rank() / 3);
}

TEST(RanksOnTwoHosts, SumRightlyWhereverTheyAre) {
  for (const auto* body : {"on_two_hosts", "on_hosts_in_turns", "on_uneven_hosts"})
    for (const auto& rank : fork_ranks(4, body)) EXPECT_EQ(rank.result, "right") << body << rank.error;
}

// The TCP connections of this process.
void for_each_connection(const std::function<void(const tcp_info&)>& look) {
  for (const auto& descriptor : std::filesystem::directory_iterator("/proc/self/fd")) {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (::getsockopt(std::stoi(descriptor.path().filename()), IPPROTO_TCP, TCP_INFO, &info, &size) == 0)
      look(info);
  }
}

// What this process has sent over them.
std::uint64_t bytes_sent_over_tcp() {
  std::uint64_t bytes = 0;
  for_each_connection([&](const tcp_info& info) { bytes += info.tcpi_bytes_sent; });
  return bytes;
}

// The argument says how many ranks a host has. Returns how many times the bytes of a sum this rank sends for
// it.
LOCKSTEP_RANK_BODY(counts_what_it_sends)(Communicator comm, std::string members)->std::string {
  env::set("LOCKSTEP_TEST_HOST", std::to_string(comm.rank() / std::stoi(members)));
  const auto tensor = at::ones({1 << 20});
  comm.all_reduce(tensor);
  const auto count = [&] {
    comm.barrier();  // what others have not received yet may not have been sent
    return bytes_sent_over_tcp();
  };
  const auto before = count();
  comm.all_reduce(tensor);
  return std::to_string(static_cast<double>(count() - before) / static_cast<double>(tensor.nbytes()));
}

// Of two hosts each sends 2 S (H - 1) / H = S, a half by each of its ranks. Where one has three ranks, each
// of the four sends 2 S (N - 1) / N.
TEST(RanksOnTwoHosts, SendASumOnceForEachHost) {
  for (const auto& [members, sent] : {std::pair("2", 0.5), {"3", 1.5}}) {
    for (const auto& rank : fork_ranks(4, "counts_what_it_sends", members)) {
      ASSERT_EQ(rank.error, "");
      EXPECT_NEAR(std::stod(rank.result), sent, 0.25) << members << " ranks on the first host";
    }
  }
}

// How many pieces of data this process has sent over its TCP connections.
std::uint64_t segments_sent_over_tcp() {
  std::uint64_t segments = 0;
  for_each_connection([&](const tcp_info& info) { segments += info.tcpi_data_segs_out; });
  return segments;
}

// The argument says how many ranks a host has. Returns how many messages this rank sends for a barrier.
LOCKSTEP_RANK_BODY(counts_messages)(Communicator comm, std::string members)->std::string {
  env::set("LOCKSTEP_TEST_HOST", std::to_string(comm.rank() / std::stoi(members)));
  for (int i = 0; i < 10; ++i) comm.barrier();  // segments are open by then
  constexpr int kCalls = 300;
  const auto before = segments_sent_over_tcp();
  for (int i = 0; i < kCalls; ++i) comm.barrier();
  return std::to_string(static_cast<double>(segments_sent_over_tcp() - before) / kCalls);
}

// Of two hosts one rank of each sends one, but where ranks are late. Where one has three ranks, each of the
// four sends three.
TEST(RanksOnTwoHosts, AnnounceOnceForEachHost) {
  for (const auto& [members, least, most] : {std::tuple("2", 1.9, 6.0), {"3", 11.5, 13.0}}) {
    double messages = 0;
    for (const auto& rank : fork_ranks(4, "counts_messages", members)) {
      ASSERT_EQ(rank.error, "");
      messages += std::stod(rank.result);
    }
    EXPECT_GT(messages, least) << members << " ranks on the first host";
    EXPECT_LT(messages, most) << members << " ranks on the first host";
  }
}

LOCKSTEP_RANK_BODY(dies_on_a_host)(Communicator comm, std::string)->std::string {
  env::set("LOCKSTEP_TEST_HOST", std::to_string(comm.rank() / 2));
  const auto tensor = at::ones({2'000'000});
  comm.all_reduce(tensor);
  if (comm.rank() == 3) {
    std::jthread([] {
      std::this_thread::sleep_for(100ms);
      std::raise(SIGKILL);
    }).detach();
  }
  try {
    for (;;) comm.all_reduce(tensor);
  } catch (const PeerLost& error) {
    return error.what();
  }
}

TEST(RanksOnTwoHosts, LearnOfADeathOnEither) {
  const auto ranks = fork_ranks(4, "dies_on_a_host", "");
  for (const std::size_t rank : {0, 1, 2})
    EXPECT_THAT(ranks[rank].result, StartsWith("[comm] rank 3 is gone"));
}

}  // namespace
}  // namespace lockstep
