// Ranks whose system gives them memory to share, or does not, as the test says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/export.h>
#include <lockstep/testing/fork_ranks.h>

namespace {

struct {
  std::atomic<int> error = 0;  // what the system answers instead of making a segment
  std::atomic<int> made = 0;
} fake_system;

}  // namespace

// In place of the C library's.
extern "C" LOCKSTEP_API int memfd_create(const char* name, unsigned int flags) noexcept {
  const bool is_segment = std::string_view(name) == "lockstep";
  if (fake_system.error == 0 || !is_segment) {
    if (is_segment) ++fake_system.made;
    return static_cast<int>(::syscall(SYS_memfd_create, name, flags));
  }
  errno = fake_system.error;
  return -1;
}

namespace lockstep {
namespace {

using testing::fork_ranks;

constexpr std::int64_t kManyFloats = 300'007;  // uneven on any number of ranks

at::Tensor numbers_of(int rank) { return at::arange(kManyFloats, at::kFloat).remainder(1009) + 2000 * rank; }

bool sums_rightly(const Communicator& comm) {
  auto expected = at::zeros({kManyFloats});
  for (int rank = 0; rank < comm.size(); ++rank) expected += numbers_of(rank);  // whole numbers: exact
  const auto sum = numbers_of(comm.rank());
  comm.all_reduce(sum);
  return sum.equal(expected);
}

bool gathers_rightly(const Communicator& comm) {
  std::vector<at::Tensor> found, expected;
  for (int rank = 0; rank < comm.size(); ++rank) {
    found.push_back(at::empty({kManyFloats}));
    expected.push_back(numbers_of(rank));
  }
  comm.all_gather(found, numbers_of(comm.rank()));
  return at::cat(found).equal(at::cat(expected));
}

void expect_all_right(int ranks, const char* body) {
  for (const auto& rank : fork_ranks(ranks, body)) EXPECT_EQ(rank.result, "right") << rank.error;
}

LOCKSTEP_RANK_BODY(share_memory)(Communicator comm, std::string)->std::string {
  EXPECT_TRUE(sums_rightly(comm));
  EXPECT_TRUE(gathers_rightly(comm));
  for (int i = 0; i < 100; ++i) comm.barrier();
  EXPECT_EQ(fake_system.made, 1);
  return "right";
}

TEST(SegmentFaults, WithoutThemRanksShareMemory) { expect_all_right(3, "share_memory"); }

LOCKSTEP_RANK_BODY(open_after_small_ones)(Communicator comm, std::string)->std::string {
  comm.barrier();
  EXPECT_EQ(fake_system.made, 0);
  for (int i = 0; i < 10; ++i) {
    const auto one = at::ones({3});
    comm.all_reduce(one);
    EXPECT_EQ(one[0].item<int>(), comm.size());
  }
  EXPECT_EQ(fake_system.made, 1);
  return "right";
}

TEST(SegmentFaults, GroupsThatHardlyMeetShareNothing) { expect_all_right(2, "open_after_small_ones"); }

LOCKSTEP_RANK_BODY(one_gets_none)(Communicator comm, std::string)->std::string {
  if (comm.rank() == 1) fake_system.error = ENOMEM;
  for (int i = 0; i < 6; ++i) comm.barrier();
  EXPECT_TRUE(sums_rightly(comm));
  EXPECT_TRUE(gathers_rightly(comm));
  return "right";
}

TEST(SegmentFaults, WhereOneRankGetsNoneAllUseSockets) { expect_all_right(3, "one_gets_none"); }

LOCKSTEP_RANK_BODY(wants_none)(Communicator comm, std::string)->std::string {
  env::set("LOCKSTEP_SHARED_MEMORY", "0");
  EXPECT_TRUE(sums_rightly(comm));
  EXPECT_TRUE(gathers_rightly(comm));
  EXPECT_EQ(fake_system.made, 0);
  return "right";
}

TEST(SegmentFaults, WhereNobodyWantsAnyAllUseSockets) { expect_all_right(2, "wants_none"); }

LOCKSTEP_RANK_BODY(sub_groups_share)(Communicator comm, std::string)->std::string {
  const auto pair = comm.new_group({0, 1});
  if (pair) {
    const auto sum = numbers_of(comm.rank());
    pair->all_reduce(sum);
    EXPECT_TRUE(sum.equal(numbers_of(0) + numbers_of(1)));
  }
  EXPECT_TRUE(sums_rightly(comm));
  EXPECT_EQ(fake_system.made, pair ? 2 : 1);
  return "right";
}

TEST(SegmentFaults, EachGroupHasItsOwn) { expect_all_right(3, "sub_groups_share"); }

}  // namespace
}  // namespace lockstep
