#include "base/system.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <thread>

namespace lockstep {
namespace {

// sched_attr's sched_runtime, behind size, policy, flags, nice and priority. 0: the kernel does not tell.
std::uint64_t slice_ns() {
  std::array<std::byte, 48> attributes{};
  EXPECT_EQ(::syscall(SYS_sched_getattr, 0, attributes.data(), attributes.size(), 0U), 0);
  std::uint64_t runtime = 0;
  std::memcpy(&runtime, &attributes[24], sizeof runtime);
  return runtime;
}

TEST(TimeSlices, BecomeShortInOneThreadAlone) {
  const auto before = slice_ns();
  std::uint64_t asked = 0;
  std::thread([&] {
    detail::ask_for_short_time_slices();
    asked = slice_ns();
  }).join();
  EXPECT_EQ(asked, before == 0 ? 0U : 300'000U);
  EXPECT_EQ(slice_ns(), before);
}

}  // namespace
}  // namespace lockstep
