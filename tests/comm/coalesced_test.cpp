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

}  // namespace
}  // namespace lockstep
