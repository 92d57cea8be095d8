// Waits that c10d itself would not end.
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "comm/fake_stuck_work.h"
#include "comm/transport/gloo/gloo_transport.h"

namespace lockstep::detail {
namespace {

using namespace std::chrono_literals;
using test::FakeStuckWork;

std::jthread after(std::chrono::milliseconds pause, std::function<void()> act) {
  return std::jthread([pause, act = std::move(act)] {
    std::this_thread::sleep_for(pause);
    act();
  });
}

TEST(Interruptible, ACollectiveThatIsStuckIsLeftWhenItIsCalledOff) {
  Interruptible waits;
  const auto work = c10::make_intrusive<FakeStuckWork>();
  const auto other = after(20ms, [&] { waits.abort(); });
  EXPECT_THROW(waits.await_collective(work), std::runtime_error);
  EXPECT_TRUE(waits.has_abandoned());
  work->finish();
}

TEST(Interruptible, ACollectiveThatEndsIsNotAbandonedEvenIfCalledOff) {
  Interruptible waits;
  const auto work = c10::make_intrusive<FakeStuckWork>();
  waits.abort();
  const auto other = after(20ms, [&] { work->finish(); });
  waits.await_collective(work);
  EXPECT_FALSE(waits.has_abandoned());
}

TEST(Interruptible, ACollectiveMayTakeLongerThanOneLook) {
  Interruptible waits;
  const auto work = c10::make_intrusive<FakeStuckWork>();
  const auto other = after(500ms, [&] { work->finish(); });
  waits.await_collective(work);
  EXPECT_FALSE(waits.has_abandoned());
}

// A work that ends between c10d's complaint that the time is up and the question whether it has.
class FakeLateWork final : public c10d::Work {
 public:
  explicit FakeLateWork(std::exception_ptr failure = {}) : failure_(std::move(failure)) {}

  bool wait(std::chrono::milliseconds timeout) override {
    if (timeout != kNoTimeout) throw std::runtime_error("Operation timed out!");
    if (failure_) std::rethrow_exception(failure_);
    return true;
  }
  bool isCompleted() override { return true; }

 private:
  std::exception_ptr failure_;
};

TEST(Interruptible, ACollectiveThatEndsAtTheLastMomentHasEnded) {
  Interruptible waits;
  waits.await_collective(c10::make_intrusive<FakeLateWork>());
  EXPECT_FALSE(waits.has_abandoned());
}

TEST(Interruptible, ACollectiveThatFailsAtTheLastMomentSaysWhy) {
  Interruptible waits;
  const auto failure = std::make_exception_ptr(std::domain_error("why"));
  EXPECT_THROW(waits.await_collective(c10::make_intrusive<FakeLateWork>(failure)), std::domain_error);
}

TEST(Interruptible, MessagesAreAbortedNowAndLater) {
  Interruptible waits;
  const auto before = c10::make_intrusive<FakeStuckWork>(), later = c10::make_intrusive<FakeStuckWork>();
  const auto other = after(20ms, [&] { waits.abort(); });
  EXPECT_THROW(waits.await_message(before), std::runtime_error);
  EXPECT_THROW(waits.await_message(later), std::runtime_error);
}

}  // namespace
}  // namespace lockstep::detail
