// How long the lanes of messages live.
#include "comm/group/lane.h"

#include <chrono>
#include <future>
#include <thread>

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

TEST(ProgressQueue, FinishesWhatIsReliedOnAndWaitsForNothingElse) {
  ProgressQueue queue;
  std::promise<void> end;
  queue.push([] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  const auto relied_on = queue.push([] { throw std::runtime_error("the peer is gone"); });
  const auto other = queue.push([&] { end.get_future().wait(); });
  queue.rely_on(*relied_on);
  queue.finish_relied_on();
  EXPECT_TRUE(queue.is_done(*relied_on));
  EXPECT_FALSE(queue.is_done(*other));
  end.set_value();
  queue.wait(*other);
}

}  // namespace
}  // namespace lockstep::detail
