// Collectives of ranks that share segments, and the segments' flags.
#include "comm/collectives/segment_collectives.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include <lockstep/testing/run_ranks.h>

namespace lockstep {
namespace {

using detail::Collective;
using detail::CollectiveKind;
using detail::Flag;
using detail::GroupSegments;
using detail::kSlotBytes;
using detail::SegmentAddress;
using detail::SegmentCollectives;
using detail::SharedSegment;

std::vector<SegmentAddress> addresses_of_all(const Communicator& comm, const SharedSegment& own) {
  const auto mine = own.address();
  std::vector<SegmentAddress> all;
  for (const auto& bytes : comm.all_gather_bytes({reinterpret_cast<const char*>(&mine), sizeof mine}))
    std::memcpy(&all.emplace_back(), bytes.data(), sizeof mine);
  return all;
}

GroupSegments segments_of(const Communicator& comm) {
  std::vector<SharedSegment> members;
  const auto own = SharedSegment::create();
  auto addresses = addresses_of_all(comm, *own);
  for (const auto& address : addresses) members.push_back(SharedSegment::open(address).value());
  comm.barrier();  // all have opened it before it is closed here
  return {std::move(members), std::move(addresses), comm.rank()};
}

// A rank that waits for as long as it takes.
class SegmentRank {
 public:
  explicit SegmentRank(const Communicator& comm) : segments_(segments_of(comm)) {
    EXPECT_FALSE(collectives_.are_open());
    collectives_.open(segments_);
  }
  std::int64_t perform(const Collective& collective) {
    return collectives_.perform(collective, [](int, Flag& flag, std::uint64_t value) {
      while (!sleep_until(flag, value)) continue;
    });
  }

 private:
  GroupSegments segments_;
  SegmentCollectives collectives_;
};

// Whole numbers, so that sums are exact; another one at each place of each rank.
at::Tensor numbers_of(int rank, std::int64_t elements, at::ScalarType dtype = at::kFloat) {
  return ((at::arange(elements, at::kLong) + 7 * rank) % 61).to(dtype);
}

at::Tensor sum_of_all(int ranks, std::int64_t elements, at::ScalarType dtype) {
  auto sum = at::zeros({elements}, at::kComplexDouble);
  for (int rank = 0; rank < ranks; ++rank) sum += numbers_of(rank, elements, at::kComplexDouble);
  return at::isComplexType(dtype) ? sum.to(dtype) : at::real(sum).to(at::kLong).to(dtype);
}

void perform_each(const Communicator& comm, SegmentRank& rank, std::int64_t elements, at::ScalarType dtype) {
  const int ranks = comm.size();
  const auto expected = sum_of_all(ranks, elements, dtype);
  const auto all = numbers_of(comm.rank(), elements, dtype);
  rank.perform({.kind = CollectiveKind::kAllReduce, .output = all});
  EXPECT_TRUE(at::equal(all, expected)) << elements << " " << dtype;

  const auto part = at::empty({elements}, dtype);
  const auto whole = numbers_of(comm.rank(), elements, dtype).repeat({ranks});
  const auto before = whole.clone();
  rank.perform({.kind = CollectiveKind::kReduceScatter, .output = part, .input = whole});
  EXPECT_TRUE(at::equal(part, expected)) << elements << " " << dtype;
  EXPECT_TRUE(at::equal(whole, before)) << "the input was changed";

  const auto rows = at::empty({ranks, elements}, dtype);
  rank.perform({.kind = CollectiveKind::kAllGather,
                .output = rows,
                .input = numbers_of(comm.rank(), elements, dtype)});
  for (int each = 0; each < ranks; ++each)
    EXPECT_TRUE(at::equal(rows[each], numbers_of(each, elements, dtype))) << elements << " " << dtype;

  const int root = ranks - 1;
  const auto at_root = numbers_of(comm.rank(), elements, dtype);
  rank.perform({.kind = CollectiveKind::kReduce, .output = at_root, .root = root});
  EXPECT_TRUE(at::equal(at_root, comm.rank() == root ? expected : numbers_of(comm.rank(), elements, dtype)));

  const auto one = numbers_of(comm.rank(), elements, dtype);
  rank.perform({.kind = CollectiveKind::kBroadcast, .output = one, .root = root});
  EXPECT_TRUE(at::equal(one, numbers_of(root, elements, dtype))) << elements << " " << dtype;
}

// Slices and chunks may be short, or empty; several fill all slots more than once.
TEST(SegmentCollectives, TakeTensorsOfAnySize) {
  constexpr auto kChunk = static_cast<std::int64_t>(kSlotBytes / sizeof(float));
  for (const int ranks : {2, 3, 4, 8}) {
    testing::run_ranks(ranks, [](const Communicator& comm) {
      SegmentRank rank(comm);
      for (const std::int64_t elements :
           {std::int64_t{0}, std::int64_t{1}, std::int64_t{15}, std::int64_t{17}, std::int64_t{31'000},
            kChunk - 1, kChunk, kChunk + 1, 2 * kChunk, 9 * kChunk + 5})
        perform_each(comm, rank, elements, at::kFloat);
      perform_each(comm, rank, 2 * kChunk + 3, at::kByte);
      perform_each(comm, rank, 2 * kChunk + 3, at::kBFloat16);
      perform_each(comm, rank, kChunk + 3, at::kDouble);
      perform_each(comm, rank, kChunk + 3, at::kComplexDouble);
    });
  }
}

// What rank `src` gives to rank `dst`: nothing to some, several chunks to others.
at::Tensor parcel(int src, int dst) {
  const std::int64_t elements = (src + 2 * dst) % 3 * 50'003 + (src == dst ? 5 : 0);
  return at::arange(elements, at::kInt) + 100 * src + dst;
}

TEST(SegmentCollectives, ExchangePartsOfAnySize) {
  for (const int ranks : {2, 3, 5}) {
    testing::run_ranks(ranks, [](const Communicator& comm) {
      SegmentRank rank(comm);
      const int size = comm.size();
      for (int round = 0; round < 3; ++round) {
        std::vector<at::Tensor> given, taken, expected;
        for (int other = 0; other < size; ++other) {
          given.push_back(parcel(comm.rank(), other));
          expected.push_back(parcel(other, comm.rank()));
          taken.push_back(at::zeros_like(expected.back()));
        }
        rank.perform({.kind = CollectiveKind::kAllToAllList, .outputs = taken, .inputs = given});
        for (std::size_t i = 0; i < taken.size(); ++i) EXPECT_TRUE(at::equal(taken[i], expected[i])) << i;

        const auto mine = at::zeros_like(parcel(round % size, comm.rank()));
        std::vector<at::Tensor> all;
        for (int other = 0; other < size && comm.rank() == round % size; ++other)
          all.push_back(parcel(comm.rank(), other));
        rank.perform({.kind = CollectiveKind::kScatter, .output = mine, .inputs = all, .root = round % size});
        EXPECT_TRUE(at::equal(mine, parcel(round % size, comm.rank())));
      }
    });
  }
}

TEST(SegmentCollectives, CountWhatTheyHandOver) {
  testing::run_ranks(3, [](const Communicator& comm) {
    SegmentRank rank(comm);
    const auto sent = rank.perform({.kind = CollectiveKind::kAllReduce, .output = at::ones({30'000})});
    EXPECT_NEAR(static_cast<double>(sent), 2 * 2.0 / 3 * 30'000 * sizeof(float), 256);
    const auto one = at::ones({30'000});
    const auto shown = rank.perform({.kind = CollectiveKind::kBroadcast, .output = one, .root = 1});
    EXPECT_EQ(shown, comm.rank() == 1 ? 2 * 30'000 * 4 : 0);
  });
}

// Memory of its own comes to it when it is first written.
TEST(SegmentCollectives, TakeLazyClones) {
  testing::run_ranks(2, [](const Communicator& comm) {
    SegmentRank rank(comm);
    const auto source = numbers_of(comm.rank(), 31'000);
    const auto clone = at::_lazy_clone(source);
    rank.perform({.kind = CollectiveKind::kAllReduce, .output = clone});
    EXPECT_TRUE(at::equal(clone, sum_of_all(2, 31'000, at::kFloat)));
    EXPECT_TRUE(at::equal(source, numbers_of(comm.rank(), 31'000)));
  });
}

TEST(SharedSegment, IsOpenedByWhoKnowsItsSeal) {
  const auto own = SharedSegment::create();
  ASSERT_TRUE(own.has_value());
  const auto address = own->address();
  const auto opened = SharedSegment::open(address);
  ASSERT_TRUE(opened.has_value());
  own->data()[detail::kSegmentBytes - 1] = std::byte{7};
  EXPECT_EQ(opened->data()[detail::kSegmentBytes - 1], std::byte{7});

  auto other = address;
  other.seal += 2;
  EXPECT_FALSE(SharedSegment::open(other).has_value());
  other = address;
  other.machine += 2;
  EXPECT_FALSE(SharedSegment::open(other).has_value());
  other = address;
  other.descriptor = 0;  // no segment
  EXPECT_FALSE(SharedSegment::open(other).has_value());
  EXPECT_FALSE(SharedSegment::open({}).has_value());
  EXPECT_FALSE(is_gone(address));
  other = address;
  other.descriptor = 1 << 20;
  EXPECT_TRUE(is_gone(other));
}

TEST(Flag, WakesWhoSleeps) {
  Flag flag{};
  EXPECT_TRUE(has_come_to(flag, 0));
  EXPECT_FALSE(sleep_until(flag, 1));  // for a while
  std::jthread waiter([&] {
    while (!sleep_until(flag, 2)) continue;
    post(flag, 3);
  });
  post(flag, 1);
  post(flag, 2);
  while (!spin_until(flag, 3)) continue;
  EXPECT_EQ(flag.sleepers, 0);
}

}  // namespace
}  // namespace lockstep
