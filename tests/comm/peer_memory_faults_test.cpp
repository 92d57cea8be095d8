// Ranks whose system reads other processes' memory, or does not, as the test says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/export.h>
#include <lockstep/testing/fork_ranks.h>

namespace {

constexpr std::size_t kLeastPart = 4096;  // seals are smaller

struct {
  std::atomic<int> error_of_all = 0;    // what the system answers instead of reading another process
  std::atomic<int> error_of_parts = 0;  // the same, where a part is read
  std::atomic<int> reads = 0;           // of parts
} fake_system;

int answer_for(const iovec& wanted) {
  const bool is_part = wanted.iov_len >= kLeastPart;
  if (is_part) ++fake_system.reads;
  return is_part && fake_system.error_of_parts != 0 ? fake_system.error_of_parts : fake_system.error_of_all;
}

}  // namespace

// In place of the C library's.
extern "C" LOCKSTEP_API ssize_t process_vm_readv(pid_t process, const iovec* here, unsigned long here_count,
                                                 const iovec* there, unsigned long there_count,
                                                 unsigned long flags) noexcept {
  const int error = process == ::getpid() ? 0 : answer_for(there[0]);
  if (error == 0)
    return ::syscall(SYS_process_vm_readv, process, here, here_count, there, there_count, flags);
  errno = error;
  return -1;
}

namespace lockstep {
namespace {

using testing::fork_ranks;

constexpr std::int64_t kManyFloats = 300'007;  // floats; uneven on any number of ranks

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

// The first collective finds out who reads whom. Then a sum is read in slices, to be added while they are in
// the cache; what is gathered, at once.
LOCKSTEP_RANK_BODY(count_reads)(Communicator comm, std::string)->std::string {
  EXPECT_TRUE(sums_rightly(comm));
  fake_system.reads = 0;
  EXPECT_TRUE(sums_rightly(comm));
  EXPECT_GE(fake_system.reads, 5 + 1);
  fake_system.reads = 0;
  EXPECT_TRUE(gathers_rightly(comm));
  EXPECT_EQ(fake_system.reads, 1);
  return "right";
}

TEST(PeerMemoryFaults, WithoutThemMemoryIsRead) { expect_all_right(2, "count_reads"); }

// Machines restored from one snapshot have one boot id, and equal process ids in it.
LOCKSTEP_RANK_BODY(look_like_neighbours)(Communicator comm, std::string)->std::string {
  fake_system.error_of_all = ESRCH;
  EXPECT_TRUE(sums_rightly(comm));
  EXPECT_TRUE(gathers_rightly(comm));
  EXPECT_EQ(fake_system.reads, 0);
  return "right";
}

TEST(PeerMemoryFaults, RanksThatLookLikeNeighboursUseSockets) { expect_all_right(3, "look_like_neighbours"); }

// Rank 0 may read nobody, and is read by all.
LOCKSTEP_RANK_BODY(one_reads_nobody)(Communicator comm, std::string)->std::string {
  if (comm.rank() == 0) fake_system.error_of_all = ESRCH;
  EXPECT_TRUE(sums_rightly(comm));
  fake_system.reads = 0;
  EXPECT_TRUE(gathers_rightly(comm));
  EXPECT_EQ(fake_system.reads, comm.rank() == 0 ? 0 : 2);
  return "right";
}

TEST(PeerMemoryFaults, WhoCannotReadOthersIsReadByThem) { expect_all_right(3, "one_reads_nobody"); }

LOCKSTEP_RANK_BODY(keep_parts_from_rank_0)(Communicator comm, std::string)->std::string {
  EXPECT_TRUE(gathers_rightly(comm));
  if (comm.rank() == 0) fake_system.error_of_parts = EFAULT;
  for (int round = 0; round < 2; ++round) EXPECT_TRUE(gathers_rightly(comm));
  EXPECT_EQ(fake_system.reads, comm.rank() == 0 ? 2 + 2 : 6);  // each of the others was tried once more
  return "right";
}

TEST(PeerMemoryFaults, PartsThatTheSystemKeepsFromOthersComeThroughSockets) {
  expect_all_right(3, "keep_parts_from_rank_0");
}

template <class Body>
std::string error_of(Body body) {
  try {
    body();
    return "none";
  } catch (const PeerLost& error) {
    return std::string("lost: ") + error.what();
  } catch (const CommError& error) {
    return error.what();
  }
}

LOCKSTEP_RANK_BODY(fail_to_sum)(Communicator comm, std::string error)->std::string {
  EXPECT_TRUE(sums_rightly(comm));
  if (comm.rank() == 0) fake_system.error_of_parts = std::stoi(error);
  return error_of([&] { sums_rightly(comm); });
}

LOCKSTEP_RANK_BODY(fail_to_gather)(Communicator comm, std::string error)->std::string {
  if (comm.rank() == 0) fake_system.error_of_parts = std::stoi(error);
  return error_of([&] { gathers_rightly(comm); });
}

std::string error_of_rank_0(const char* body, int error) {
  return fork_ranks(2, body, std::to_string(error)).front().result;
}

// Only who is gone is lost.
TEST(PeerMemoryFaults, AreToldAsTheyAre) {
  using ::testing::AllOf;
  using ::testing::HasSubstr;
  using ::testing::Not;
  using ::testing::StartsWith;
  EXPECT_THAT(error_of_rank_0("fail_to_sum", EFAULT),
              AllOf(Not(StartsWith("lost")),
                    HasSubstr("memory of rank 1 of the group cannot be read any more: Bad address"),
                    HasSubstr("LOCKSTEP_CMA=0")));
  for (const auto* body : {"fail_to_sum", "fail_to_gather"}) {
    EXPECT_THAT(error_of_rank_0(body, ENOMEM),
                AllOf(Not(StartsWith("lost")), HasSubstr("Cannot allocate memory")));
    EXPECT_THAT(error_of_rank_0(body, ESRCH), StartsWith("lost"));
  }
}

LOCKSTEP_RANK_BODY(fail_to_sum_and_go_on)(Communicator comm, std::string)->std::string {
  EXPECT_TRUE(sums_rightly(comm));
  if (comm.rank() == 0) fake_system.error_of_parts = ENOMEM;
  const auto first = error_of([&] { sums_rightly(comm); });
  const auto second = error_of([&] { comm.barrier(); });
  if (comm.rank() == 0) {
    EXPECT_EQ(second, first);
  }
  return first;
}

// Others, who wait for the end of what has failed here, must not take the next one for it.
TEST(PeerMemoryFaults, NothingIsAnnouncedAfterwards) {
  using ::testing::HasSubstr;
  using ::testing::StartsWith;
  const auto ranks = fork_ranks(2, "fail_to_sum_and_go_on");
  EXPECT_THAT(ranks[0].result, HasSubstr("Cannot allocate memory"));
  EXPECT_THAT(ranks[1].result, StartsWith("lost: "));
}

}  // namespace
}  // namespace lockstep
