#include "profilers/call_records.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace lockstep::detail {
namespace {

constinit thread_local bool is_ending = false;

struct Leases {
  std::vector<ThreadLease> all;

  ~Leases() {
    is_ending = true;
    last_object = {};
    for (const auto& lease : all) lease.in_use->store(false, std::memory_order_release);
  }
};

std::vector<ThreadLease>& leases() {
  thread_local Leases mine;
  return mine.all;
}

}  // namespace

constinit thread_local LastObject last_object;

void* leased_object(std::uint64_t owner) noexcept {
  if (is_ending) return nullptr;
  const auto found = std::ranges::find(leases(), owner, &ThreadLease::owner);
  if (found == leases().end()) return nullptr;
  last_object = {owner, found->object};
  return found->object;
}

bool keep_lease(const ThreadLease& lease) {
  if (is_ending) return false;
  std::erase_if(leases(),
                [](const ThreadLease& old) { return old.in_use.use_count() == 1; });  // owner is gone
  leases().push_back(lease);
  return true;
}

std::uint64_t next_owner() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

std::string current_thread_name() {
  if (::gettid() == ::getpid()) return "main";
  char name[16] = {};
  ::pthread_getname_np(::pthread_self(), name, sizeof name);
  return name;
}

void DurationHistogram::add(std::chrono::nanoseconds duration) noexcept {
  const auto ns = static_cast<std::uint64_t>(duration.count());
  total_.add(duration);
  widen(ns, ns);
  steps_[step_of(ns)].add(1);
}

void DurationHistogram::merge(const DurationHistogram& other) noexcept {
  total_.merge(other.total_);
  widen(other.min_ns_.get(), other.max_ns_.get());
  for (std::size_t step = 0; step < steps_.size(); ++step) steps_[step].add(other.steps_[step].get());
}

void DurationHistogram::widen(std::uint64_t least_ns, std::uint64_t most_ns) noexcept {
  if (least_ns < min_ns_.get()) min_ns_.set(least_ns);
  if (most_ns > max_ns_.get()) max_ns_.set(most_ns);
}

double DurationHistogram::quantile_s(double q) const {
  const auto rank = std::max(1.0, std::ceil(q * static_cast<double>(calls())));
  std::uint64_t seen = 0;
  for (std::size_t step = 0; step < steps_.size(); ++step) {
    seen += steps_[step].get();
    if (static_cast<double>(seen) >= rank) return std::clamp(1e-9 * middle_ns(step), min_s(), max_s());
  }
  return max_s();
}

// Below 128 each value has its step; above, each power of two has 64.
std::size_t DurationHistogram::step_of(std::uint64_t ns) {
  ns = std::min(ns, (std::uint64_t{1} << kLongest) - 1);
  if (ns < 2 * kSteps) return ns;
  const int shift = std::bit_width(ns) - 7;
  return kSteps * static_cast<std::size_t>(shift) + (ns >> shift);
}

double DurationHistogram::middle_ns(std::size_t step) {
  if (step < 2 * kSteps) return static_cast<double>(step);
  const int shift = static_cast<int>(step / kSteps) - 1;
  const double lowest = std::ldexp(static_cast<double>(step % kSteps + kSteps), shift);
  return lowest + (std::ldexp(1.0, shift) - 1) / 2;
}

namespace {

constexpr std::size_t kMost = std::size_t{1} << 40;

template <class T>
void store(T& to, T value) {
  std::atomic_ref(to).store(value, std::memory_order_release);
}

template <class T>
T load(T& from) {
  return std::atomic_ref(from).load(std::memory_order_acquire);
}

}  // namespace

EventRing::EventRing(std::size_t capacity)
    : mask_(std::bit_ceil(std::clamp<std::size_t>(capacity, 2, kMost)) - 1),
      events_(std::make_unique_for_overwrite<TraceEvent[]>(mask_ + 1)) {}

// A reader that sees any part of this event also sees, by the release, that its writing has begun.
void EventRing::push(const TraceEvent& event) noexcept {
  const auto number = begun_.load(std::memory_order_relaxed);
  begun_.store(number + 1, std::memory_order_relaxed);
  auto& to = slot(number);
  store(to.begin_ns, event.begin_ns);
  store(to.value, event.value);
  store(to.action, event.action);
  store(to.kind, event.kind);
  done_.store(number + 1, std::memory_order_release);
}

EventRing::Taken EventRing::take() {
  const auto oldest = [this](std::uint64_t end) { return end - std::min(end, mask_ + 1); };
  const auto end = done_.load(std::memory_order_acquire);
  const auto first = std::max(taken_, oldest(end));
  Taken taken;
  taken.events.reserve(end - first);
  for (auto number = first; number < end; ++number) {
    auto& from = slot(number);
    taken.events.push_back({load(from.begin_ns), load(from.value), load(from.action), load(from.kind)});
  }
  // Drops events that were overwritten while they were read.
  const auto whole = std::clamp(oldest(begun_.load(std::memory_order_relaxed)), first, end);
  taken.events.erase(taken.events.begin(), taken.events.begin() + static_cast<std::ptrdiff_t>(whole - first));
  taken.dropped = whole - taken_;
  taken_ = end;
  return taken;
}

}  // namespace lockstep::detail
