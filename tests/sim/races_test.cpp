// What streams are not ordered for is found by name, whatever the delays are; what is ordered is not
// reported.
#include "sim/races.h"

#include "sim/installed.h"
#include "sim/kernel_views.h"

namespace lockstep::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SimRaces : public SimTest, public ::testing::WithParamInterface<std::uint64_t> {
 protected:
  SimRaces() { set_delays(GetParam(), std::chrono::microseconds(GetParam() % 2 == 0 ? 0 : 300)); }
};
INSTANTIATE_TEST_SUITE_P(Delays, SimRaces, ::testing::Values(1, 2, 3));

const auto kDefault = stream(0, 0);

TEST_P(SimRaces, AreFoundWhereAReaderDoesNotWait) {
  auto tensor = at::ones({1000}, sim_floats());
  order(kDefault, stream(0, 3));
  {
    const c10::StreamGuard guard(stream(0, 3));
    tensor.mul_(2);
  }
  const auto sum = tensor + 1;
  EXPECT_THAT(take_reports(),
              ElementsAre("read before ready: aten::add.out reads on sim:0 stream 0 what aten::mul.out "
                          "writes on sim:0 stream 3; nothing orders them"));
}

TEST_P(SimRaces, AreFoundWhereAWriterDoesNotWait) {
  auto tensor = at::ones({1000}, sim_floats());
  order(kDefault, stream(0, 3));
  at::Tensor product;
  {
    const c10::StreamGuard guard(stream(0, 3));
    product = tensor * 2;
  }
  tensor.fill_(7);
  EXPECT_THAT(take_reports(),
              ElementsAre("missing wait: aten::fill_.Scalar writes on sim:0 stream 0 what aten::mul.out "
                          "reads on sim:0 stream 3; nothing orders them"));
}

TEST_P(SimRaces, AreNotFoundWhereEventsOrderStreams) {
  auto tensor = at::ones({1000}, sim_floats());
  order(kDefault, stream(0, 3));
  {
    const c10::StreamGuard guard(stream(0, 3));
    tensor.mul_(2);
  }
  order(stream(0, 3), stream(0, 5));
  order(stream(0, 5), kDefault);
  EXPECT_EQ(on_cpu(tensor + 1)[5].item<float>(), 3);
  EXPECT_THAT(take_reports(), IsEmpty());
}

TEST_P(SimRaces, AreNotFoundWhereTheHostHasWaited) {
  auto tensor = at::ones({1000}, sim_floats());
  order(kDefault, stream(0, 3));
  {
    const c10::StreamGuard guard(stream(0, 3));
    tensor.mul_(2);
  }
  stream(0, 3).synchronize();
  EXPECT_EQ(on_cpu(tensor + 1)[5].item<float>(), 3);
  EXPECT_THAT(take_reports(), IsEmpty());
}

TEST_P(SimRaces, AreNotFoundBetweenPartsOfATensor) {
  auto tensor = at::zeros({8, 64}, sim_floats());
  order(kDefault, stream(0, 3));
  {
    const c10::StreamGuard guard(stream(0, 3));
    tensor.slice(0, 0, 4).slice(1, 0, 32).add_(1);
    tensor.slice(0, 4, 8).slice(1, 32, 64).add_(1);
  }
  tensor.slice(0, 0, 4).slice(1, 32, 64).add_(1);
  tensor.slice(0, 4, 8).slice(1, 0, 32).add_(1);
  EXPECT_THAT(take_reports(), IsEmpty());
  tensor.slice(1, 31, 33).add_(1);
  EXPECT_THAT(take_reports(), ElementsAre(::testing::StartsWith("read before ready: aten::add.out")));
}

TEST_P(SimRaces, AreFoundWhereMemoryIsFreedUnderAReader) {
  const auto lend = [](bool tells) {
    auto tensor = at::ones({5000}, sim_floats());
    order(kDefault, stream(0, 4));
    const c10::StreamGuard guard(stream(0, 4));
    auto product = tensor * 2;
    if (tells) tensor.record_stream(stream(0, 4));
    return product;
  };
  const auto product = lend(false);
  EXPECT_THAT(take_reports(),
              ElementsAre("use after free: memory is freed on sim:0 stream 0 while aten::mul.out reads it "
                          "on sim:0 stream 4; record_stream() or a wait is missing"));
  const auto other = lend(true);
  const auto next = at::full({5000}, 7, sim_floats());
  EXPECT_THAT(take_reports(), IsEmpty());
}

TEST_P(SimRaces, AreFoundWhereTheDeviceIsAnother) {
  const auto tensor = at::ones({8}, sim_floats().device(c10::Device(kDeviceType, 1)));
  launch("own kernel", 0, {{tensor}}, [] {});
  EXPECT_THAT(take_reports(),
              ElementsAre("wrong device: own kernel on sim:0 stream 0 uses memory of sim:1; a device guard "
                          "is missing",
                          ::testing::StartsWith("read before ready: own kernel")));
}

TEST_P(SimRaces, AreFoundInMemoryThatWasFreedBefore) {
  auto tensor = at::ones({8}, sim_floats());
  const Operand operand{kernel_view(tensor)};
  const auto span = *span_of(tensor, false);
  tensor.reset();
  const auto alias = at::from_blob(reinterpret_cast<void*>(span.begin), {8}, sim_floats());
  launch("own kernel", 0, {{alias}}, [] {});
  EXPECT_THAT(take_reports(),
              ElementsAre("use after free: own kernel on sim:0 stream 0 uses memory that was freed before "
                          "it was issued"));
}

TEST_P(SimRaces, AreFoundWhereTheHostOverwritesWhatIsCopied) {
  auto pinned = at::full({1000}, 3, at::TensorOptions().pinned_memory(true));
  auto tensor = at::empty({1000}, sim_floats());
  tensor.copy_(pinned, /*non_blocking=*/true);
  kDefault.synchronize();
  pinned.fill_(4);
  tensor.copy_(pinned, /*non_blocking=*/true);
  kDefault.synchronize();
  EXPECT_THAT(take_reports(), IsEmpty());
  tensor.copy_(pinned, /*non_blocking=*/true);
  pinned.fill_(5);
  kDefault.synchronize();
  EXPECT_THAT(take_reports(),
              ElementsAre("pinned memory: the host writes what copy to the device reads on sim:0 stream 0; "
                          "it has not waited for the copy"));
}

TEST_P(SimRaces, OfStreamsOverPinnedMemoryAreFound) {
  auto pinned = at::empty({1000}, at::TensorOptions().pinned_memory(true));
  const auto from = at::ones({1000}, sim_floats());
  auto to = at::zeros({1000}, sim_floats());
  order(kDefault, stream(0, 2));
  pinned.copy_(from, /*non_blocking=*/true);
  {
    const c10::StreamGuard guard(stream(0, 2));
    to.copy_(pinned, /*non_blocking=*/true);
  }
  EXPECT_THAT(take_reports(),
              ElementsAre("read before ready: copy to the device reads on sim:0 stream 2 what copy to the "
                          "host writes on sim:0 stream 0; nothing orders them"));
}

TEST(SimSpans, OfRowsMeetWhereTheirColumnsDo) {
  const Span left{.begin = 0, .end = 360, .row_bytes = 40, .stride = 80};
  const Span right{.begin = 40, .end = 400, .row_bytes = 40, .stride = 80};
  const Span middle{.begin = 30, .end = 370, .row_bytes = 20, .stride = 80};
  EXPECT_FALSE(overlap(left, right));
  EXPECT_TRUE(overlap(left, middle));
  EXPECT_TRUE(overlap(middle, right));
  EXPECT_TRUE(overlap(left, {.begin = 90, .end = 100}));
  EXPECT_FALSE(overlap(left, {.begin = 120, .end = 160}));
  EXPECT_TRUE(overlap(left, {.begin = 120, .end = 161}));
  EXPECT_FALSE(overlap(left, {.begin = 400, .end = 410}));
}

}  // namespace
}  // namespace lockstep::sim
