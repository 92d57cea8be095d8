#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "profilers/call_records.h"

namespace lockstep::detail {
namespace {

TraceEvent numbered(std::int64_t number) {
  return {number, -number, static_cast<std::uint32_t>(number), TraceEvent::Kind::kCall};
}

// All parts of an event are of one push.
void expect_whole(const TraceEvent& event) {
  EXPECT_EQ(event.value, -event.begin_ns);
  EXPECT_EQ(event.action, static_cast<std::uint32_t>(event.begin_ns));
}

TEST(EventRing, GivesEachEventOnce) {
  EventRing ring(4);
  for (int i = 0; i < 3; ++i) ring.push(numbered(i));
  EXPECT_EQ(ring.take().events.size(), 3U);
  ring.push(numbered(3));
  const auto taken = ring.take();
  ASSERT_EQ(taken.events.size(), 1U);
  EXPECT_EQ(taken.events[0].begin_ns, 3);
  EXPECT_EQ(taken.dropped, 0U);
  EXPECT_TRUE(ring.take().events.empty());
}

TEST(EventRing, KeepsTheLastOnesAndCountsTheOthers) {
  EventRing ring(5);  // becomes 8
  for (int i = 0; i < 20; ++i) ring.push(numbered(i));
  const auto taken = ring.take();
  ASSERT_EQ(taken.events.size(), 8U);
  EXPECT_EQ(taken.events.front().begin_ns, 12);
  EXPECT_EQ(taken.events.back().begin_ns, 19);
  EXPECT_EQ(taken.dropped, 12U);
}

TEST(EventRing, LosesNothingUncountedWhileItIsReadAndWritten) {
  constexpr std::int64_t kEvents = 200'000;
  EventRing ring(64);
  std::atomic<bool> done{false};
  std::jthread writer([&] {
    for (std::int64_t i = 0; i < kEvents; ++i) ring.push(numbered(i));
    done = true;
  });
  std::int64_t accounted = 0;
  for (bool last = false; !last;) {
    last = done;
    const auto taken = ring.take();
    accounted += static_cast<std::int64_t>(taken.dropped);
    for (const auto& event : taken.events) {
      expect_whole(event);
      EXPECT_EQ(event.begin_ns, accounted++);
    }
    if (::testing::Test::HasFailure()) break;
  }
  writer.join();
  EXPECT_EQ(accounted, kEvents);
}

}  // namespace
}  // namespace lockstep::detail
