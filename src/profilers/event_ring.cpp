#include "profilers/event_ring.h"

#include <algorithm>
#include <bit>

namespace lockstep::detail {
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
