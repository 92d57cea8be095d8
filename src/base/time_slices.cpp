#include "base/time_slices.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace lockstep::detail {
namespace {

// struct sched_attr of the kernel, which libc's headers lack, in its first version.
struct SchedulingAttributes {
  std::uint32_t size = sizeof(SchedulingAttributes);
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime_ns = 0;
  std::uint64_t deadline_ns = 0;
  std::uint64_t period_ns = 0;
};

constexpr std::uint32_t kNormalPolicy = 0;  // SCHED_OTHER
// Shorter than what others have, so that it goes first, and long enough that caches are worth filling: two
// threads of a core that change places more often take them away from each other.
constexpr std::uint64_t kSliceNs = 300'000;

}  // namespace

void ask_for_short_time_slices() {
  SchedulingAttributes attributes;
  const bool is_known = ::syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0U) == 0;
  if (!is_known || attributes.policy != kNormalPolicy) return;
  attributes.runtime_ns = kSliceNs;
  (void)::syscall(SYS_sched_setattr, 0, &attributes, 0U);  // a refusal costs time, nothing else
}

}  // namespace lockstep::detail
