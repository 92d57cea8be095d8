// How long the lanes of messages live.
#include "comm/group/lane.h"

#include <gtest/gtest.h>

#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

Collective message(int tag, CollectiveKind kind = CollectiveKind::kSend) {
  return {.kind = kind, .root = 1, .tag = tag};
}

// Whoever counts steps in tags would otherwise collect lanes.
TEST(MessageLanes, AreFreedWhenIdle) {
  int made = 0, ended = 0;
  MessageLanes lanes(
      identity_of_job(0, 2, 7), [&](const auto&) { ++made; }, [&](const auto&) { ++ended; });
  const auto held = lanes.of(message(5));
  for (int tag = 0; tag < 1000; ++tag) {
    lanes.of(message(tag))->queue.run([] {});
    EXPECT_LE(lanes.all().size(), 40) << tag;
  }
  EXPECT_EQ(made, 1000);
  EXPECT_GE(ended, 960);
  EXPECT_EQ(lanes.of(message(5)), held);
}

// As Communicator::activity() has it.
TEST(MessageLanes, CountTheMessagesToARankWhateverTheirTag) {
  MessageLanes lanes(identity_of_job(0, 2, 7));
  for (int tag = 0; tag < 3; ++tag) lanes.of(message(tag))->begin("send");
  const auto lane = lanes.of(message(9));
  lane->begin("send");
  EXPECT_EQ(lane->activity_text(), "send to rank 1 seq 4");
  lanes.of(message(9, CollectiveKind::kRecv))->begin("recv");
  EXPECT_EQ(lanes.of(message(9, CollectiveKind::kRecv))->activity_text(), "recv from rank 1 seq 1");
}

}  // namespace
}  // namespace lockstep::detail
