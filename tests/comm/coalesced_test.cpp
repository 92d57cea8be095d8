// broadcast_coalesced: many tensors as one, where all ranks mean the same ones.
#include <lockstep/comm/packed_collectives.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <lockstep/base/error.h>
#include <lockstep/testing/run_ranks.h>

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::run_ranks;
using ::testing::ThrowsMessage;
using Tensors = std::vector<at::Tensor>;

TEST(BroadcastCoalesced, ReplacesTensorsOfAnyDtypeAndShape) {
  run_ranks(2, [](const Communicator& comm) {
    const int value = 10 + comm.rank();
    const Tensors tensors{at::full({3}, value, at::kByte), at::full({2, 2}, value, at::kDouble),
                          at::full({}, value, at::kInt), at::full({4, 3}, value, at::kFloat).t(),
                          at::empty({0, 7})};
    broadcast_coalesced(comm, tensors, 1);
    for (const auto& tensor : tensors) EXPECT_TRUE(tensor.eq(11).all().item<bool>());
  });
}

/// Both ranks' tensors have as many bytes, but are not the same.
void expect_refusal(const Tensors& of_rank_0, const Tensors& of_rank_1) {
  run_ranks(2, [&](const Communicator& comm) {
    EXPECT_THAT([&] { broadcast_coalesced(comm, comm.rank() == 0 ? of_rank_0 : of_rank_1, 0); },
                ThrowsMessage<CollectiveMismatch>(HasSubstr("holding tensors of layout")));
  });
}

TEST(BroadcastCoalesced, RefusesOtherShapes) {
  expect_refusal({at::zeros({4}), at::zeros({6})}, {at::zeros({6}), at::zeros({4})});
  expect_refusal({at::zeros({4}), at::zeros({6})}, {at::zeros({4}), at::zeros({2, 3})});
  expect_refusal({at::zeros({40'000}), at::zeros({60'000})}, {at::zeros({60'000}), at::zeros({40'000})});
}

TEST(BroadcastCoalesced, RefusesOtherDtypes) {
  expect_refusal({at::zeros({4}), at::zeros({2})}, {at::zeros({4}, at::kInt), at::zeros({2})});
}

TEST(BroadcastCoalesced, RefusesAnotherNumberOfTensors) {
  expect_refusal({at::zeros({4}), at::zeros({2}), at::zeros({2})}, {at::zeros({4}), at::zeros({4})});
}

TEST(FlatCollectives, AllToAllGivesPartsAndRefusesAnotherLayout) {
  run_ranks(2, [](const Communicator& comm) {
    const auto input = at::arange(6, at::kByte).add_(10 * comm.rank()), output = at::empty_like(input);
    all_to_all_flat_async(comm, output, input, 7).wait();
    for (int rank = 0; rank < 2; ++rank)
      EXPECT_TRUE(
          output.narrow(0, 3 * rank, 3).equal(at::arange(3, at::kByte) + 3 * comm.rank() + 10 * rank));
    EXPECT_THAT(
        [&] { all_to_all_flat_async(comm, output, input, 7 + comm.rank()).wait(); },
        ThrowsMessage<CollectiveMismatch>(HasSubstr("all_to_all of uint8 holding tensors of layout")));
  });
}

// One list, of tensors that lie in several ways; small enough for the announcement, and over several chunks.
void expect_sums(int ranks, std::int64_t rows, at::ScalarType dtype, ReduceOp op) {
  run_ranks(ranks, [&](const Communicator& comm) {
    const auto values = [&](int rank, std::int64_t first) {
      return (at::arange(rows * 8, at::kFloat).view({rows, 8}) % 61 + first + rank).to(dtype);
    };
    const auto list_of = [&](int rank) {
      return Tensors{values(rank, 0), values(rank, 1).t(), at::empty({0}, dtype),
                     at::full({}, 3 + rank, dtype), values(rank, 2)};
    };
    for (int call = 0; call < 3; ++call) {
      const auto tensors = list_of(comm.rank());
      const auto expected = list_of(comm.rank());
      for (const auto& tensor : expected) comm.all_reduce(tensor, op);
      call == 1 ? all_reduce_coalesced_async(comm, tensors, op).wait()
                : all_reduce_coalesced(comm, tensors, op);
      for (std::size_t i = 0; i < tensors.size(); ++i) EXPECT_TRUE(tensors[i].equal(expected[i])) << i;
    }
  });
}

TEST(AllReduceCoalesced, HasTheBitsOfEachTensorsOwn) {
  for (const int ranks : {1, 2, 3}) {
    for (const std::int64_t rows : {1, 100, 30'000}) {
      expect_sums(ranks, rows, at::kFloat, ReduceOp::kAvg);
      expect_sums(ranks, rows, at::kHalf, ReduceOp::kSum);
      expect_sums(ranks, rows, at::kDouble, ReduceOp::kMax);
    }
  }
}

TEST(AllReduceCoalesced, RefusesWhatItCannotTake) {
  run_ranks(2, [](const Communicator& comm) {
    all_reduce_coalesced(comm, {});
    EXPECT_THAT(
        [&] {
          all_reduce_coalesced(comm, Tensors{at::ones({2}), at::ones({2}, at::kInt)});
        },
        ThrowsMessage<CommError>(HasSubstr("differ in dtype")));
    const auto tensor = at::ones({4});
    EXPECT_THAT(
        [&] {
          all_reduce_coalesced(comm, Tensors{tensor, tensor.view({2, 2})});
        },
        ThrowsMessage<CommError>(HasSubstr("shares memory")));
  });
  for (const std::int64_t size : {4, 100'000}) {
    run_ranks(2, [&](const Communicator& comm) {
      const Tensors first{at::ones({size}), at::ones({2 * size})},
          second{at::ones({2 * size}), at::ones({size})};
      EXPECT_THAT([&] { all_reduce_coalesced(comm, comm.rank() == 0 ? first : second); },
                  ThrowsMessage<CollectiveMismatch>(HasSubstr("holding tensors of layout")));
    });
  }
}

}  // namespace
}  // namespace lockstep
