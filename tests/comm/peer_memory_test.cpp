// Large parts of collectives, which ranks of one machine read from each other's memory.
#include "comm/transport/peer_memory.h"

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <system_error>
#include <vector>

#include <lockstep/base/env.h>
#include <lockstep/testing/fork_ranks.h>
#include <lockstep/testing/run_ranks.h>

#include "support/forked.h"

namespace lockstep {
namespace {

using detail::memory_part;
using detail::MemoryOwner;
using detail::MemoryPart;
using detail::read_peer_memory;
using testing::fork_ranks;

constexpr std::int64_t kLarge = 300'007;  // floats; uneven on any number of ranks

detail::Seal seal;

constexpr std::errc kRead{};

MemoryPart part_of(const std::vector<int>& values) {
  return memory_part(values.data(), values.size() * sizeof(int));
}

MemoryOwner process(std::int64_t id) {
  auto owner = seal.owner();
  owner.process = id;
  return owner;
}

TEST(PeerMemory, IsReadFromAnotherProcess) {
  const std::vector<int> values(100'000, 7);
  std::vector<int> found(values.size());
  const auto parent = seal.owner();
  const auto child = test::start_forked([&] {
    std::vector<int> read(values.size());
    const auto error = read_peer_memory(parent, part_of(values), read.data());
    ::_exit(!error && read == values ? 0 : 1);
  });
  EXPECT_EQ(test::wait_for(child), 0);
  EXPECT_EQ(read_peer_memory(parent, part_of(values), found.data()), kRead);
  EXPECT_EQ(found, values);
}

TEST(PeerMemory, OfAProcessThatIsGoneIsAnError) {
  const std::vector<int> values(1000, 7);
  std::vector<int> found(values.size());
  const auto child = test::start_forked([] { ::_exit(0); });
  test::wait_for(child);
  EXPECT_THROW((void)read_peer_memory(process(child), part_of(values), found.data()), std::runtime_error);
  auto executed = seal.owner();  // another program, at the same number
  executed.seal_address = 8;
  const MemoryPart nowhere{.address = 8, .bytes = 8};
  EXPECT_THROW((void)read_peer_memory(executed, nowhere, found.data()), std::runtime_error);
}

TEST(PeerMemory, ThatTheSystemKeepsFromOthersIsToldApart) {
  std::vector<int> found(2);
  const MemoryPart nowhere{.address = 8, .bytes = 8};
  EXPECT_EQ(read_peer_memory(seal.owner(), nowhere, found.data()), std::errc::bad_address);
  detail::Seal revoked;
  const auto before = revoked.owner();
  revoked.revoke();
  EXPECT_THROW((void)read_peer_memory(before, nowhere, found.data()), std::runtime_error);
}

TEST(PeerMemory, ThatWasWithdrawnIsAnError) {
  const std::vector<int> values(1000, 7);
  std::vector<int> found(values.size());
  detail::Seal revoked;
  const auto before = revoked.owner();
  EXPECT_EQ(read_peer_memory(before, part_of(values), found.data()), kRead);
  EXPECT_TRUE(detail::can_read_memory_of(before));
  revoked.revoke();
  for (const auto& owner : {before, revoked.owner()}) {
    EXPECT_THROW((void)read_peer_memory(owner, part_of(values), found.data()), std::runtime_error);
    EXPECT_FALSE(detail::can_read_memory_of(owner));
  }
}

TEST(PeerMemory, IsLeftAloneWhenTheEnvironmentSaysSo) {
  EXPECT_NE(detail::machine_of_this_process(), 0U);
  EXPECT_EQ(detail::machine_of_this_process(), detail::machine_of_this_process());
  env::set("LOCKSTEP_CMA", "0");
  EXPECT_EQ(detail::machine_of_this_process(), 0U);
  env::unset("LOCKSTEP_CMA");
}

at::Tensor values_of(int rank, std::int64_t count = kLarge) {
  return at::arange(count, at::kFloat).remainder(1009) + 2000 * rank;
}

at::Tensor sum_of(int ranks, std::int64_t count = kLarge) {
  auto sum = at::zeros({count});
  for (int rank = 0; rank < ranks; ++rank) sum += values_of(rank, count);  // whole numbers: exact
  return sum;
}

void expect_right_sums(const Communicator& comm) {
  const auto sum = values_of(comm.rank());
  comm.all_reduce(sum);
  EXPECT_TRUE(sum.equal(sum_of(comm.size())));
  const auto at_root = values_of(comm.rank());
  comm.reduce(at_root, 1);
  EXPECT_TRUE(at_root.equal(comm.rank() == 1 ? sum_of(comm.size()) : values_of(comm.rank())));
  const auto whole = kLarge * comm.size();
  const auto part = at::empty({kLarge});
  comm.reduce_scatter(part, values_of(comm.rank(), whole));
  EXPECT_TRUE(part.equal(sum_of(comm.size(), whole).narrow(0, comm.rank() * kLarge, kLarge)));
}

void expect_right_gathers(const Communicator& comm) {
  std::vector<at::Tensor> all, parts;
  for (int rank = 0; rank < comm.size(); ++rank) {
    all.push_back(values_of(rank));
    parts.push_back(at::empty({kLarge}));
  }
  const auto expected = at::cat(all);
  const auto flat = at::empty({kLarge * comm.size()});
  comm.all_gather(flat, values_of(comm.rank()));
  EXPECT_TRUE(flat.equal(expected));
  const auto in_place = at::zeros_like(flat);
  const auto own = in_place.narrow(0, comm.rank() * kLarge, kLarge);
  own.copy_(values_of(comm.rank()));
  comm.all_gather(in_place, own);
  EXPECT_TRUE(in_place.equal(expected));
  comm.all_gather(parts, values_of(comm.rank()));
  EXPECT_TRUE(at::cat(parts).equal(expected));
  // From each rank another number of elements: offers go one way, and small parts the other.
  std::vector<at::Tensor> to, from;
  for (int rank = 0; rank < comm.size(); ++rank) {
    to.push_back(values_of(comm.rank()).narrow(0, 0, comm.rank() == 0 ? kLarge : 5 + rank));
    from.push_back(at::empty({rank == 0 ? kLarge : 5 + comm.rank()}));
  }
  comm.all_to_all(from, to);
  for (int rank = 0; rank < comm.size(); ++rank)
    EXPECT_TRUE(from[static_cast<std::size_t>(rank)].equal(
        values_of(rank).narrow(0, 0, rank == 0 ? kLarge : 5 + comm.rank())));
}

std::string right_results(const Communicator& comm) {
  for (int round = 0; round < 3; ++round) {
    expect_right_sums(comm);
    expect_right_gathers(comm);
  }
  return "right";
}

void expect_right(int ranks, const char* body) {
  for (const auto& rank : fork_ranks(ranks, body)) EXPECT_EQ(rank.result, "right") << rank.error;
}

LOCKSTEP_RANK_BODY(read_each_other)(Communicator comm, std::string)->std::string {
  return right_results(comm);
}

TEST(PeerMemory, GivesTheSameResults) {
  for (const int ranks : {2, 3, 4}) expect_right(ranks, "read_each_other");
}

LOCKSTEP_RANK_BODY(some_use_sockets)(Communicator comm, std::string)->std::string {
  if (comm.rank() == 1) env::set("LOCKSTEP_CMA", "0");
  return right_results(comm);
}

TEST(PeerMemory, GoesTogetherWithSockets) { expect_right(3, "some_use_sockets"); }

TEST(PeerMemory, OfAnotherSizeThanExpectedIsAnError) {
  const auto gather = [](const Communicator& comm) {
    const auto count = kLarge + comm.rank();
    const std::vector<at::Tensor> parts{at::empty({count}), at::empty({count})};
    EXPECT_THROW(comm.all_gather(parts, at::ones({count})), CommError);
  };
  testing::run_ranks(2, gather, {.check_collectives = false});
}

// As another user, or in a container, might find it.
void hide_from_all_without_rights() { ::prctl(PR_SET_DUMPABLE, 0); }

void lose_rights() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct none[2] = {};
  ASSERT_EQ(::syscall(SYS_capset, &header, none), 0);
}

LOCKSTEP_RANK_BODY(one_may_not_read)(Communicator comm, std::string)->std::string {
  if (comm.rank() == 0) lose_rights();
  if (comm.rank() == 1) hide_from_all_without_rights();
  static const std::vector<int> values(1);
  const auto processes = comm.all_gather_bytes(std::to_string(::getpid()));
  const auto addresses = comm.all_gather_bytes(std::to_string(part_of(values).address));
  const MemoryPart of_1{.address = std::stoull(addresses[1]), .bytes = sizeof(int)};
  int found = 0;
  const auto error = read_peer_memory(process(std::stoll(processes[1])), of_1, &found);
  const bool may_read = comm.rank() == 1 || (comm.rank() == 2 && !error);  // rank 2: whoever may read all
  EXPECT_EQ(!error, may_read) << error.message();
  return right_results(comm);
}

TEST(PeerMemory, ThatMayNotBeReadComesThroughSockets) { expect_right(3, "one_may_not_read"); }

}  // namespace
}  // namespace lockstep
