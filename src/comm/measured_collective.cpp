#include "comm/measured_collective.h"

#include <array>
#include <atomic>
#include <thread>

namespace lockstep {
namespace {

std::atomic<CollectiveObserver*> current{nullptr};
std::atomic<int> calls{0};  // of an observer, under way

constexpr auto kLast = static_cast<std::size_t>(detail::CollectiveKind::kRecv);

}  // namespace

CollectiveObserver::~CollectiveObserver() = default;

std::span<const char* const> collective_names() {
  static const auto names = [] {
    std::array<const char*, kLast + 1> all{};
    for (std::size_t kind = 0; kind <= kLast; ++kind)
      all[kind] = detail::name_of(static_cast<detail::CollectiveKind>(kind));
    return all;
  }();
  return names;
}

ObservedCollectives::ObservedCollectives(CollectiveObserver& observer) : observer_(&observer) {
  current = observer_;
}

ObservedCollectives::~ObservedCollectives() {
  auto* expected = observer_;
  current.compare_exchange_strong(expected, nullptr);
  while (calls > 0) std::this_thread::yield();
}

namespace detail {

bool MeasuredCollective::is_observed() noexcept { return current.load(std::memory_order_relaxed) != nullptr; }

// The call is counted before the observer is looked up, so that one that was found cannot go meanwhile.
void MeasuredCollective::tell() const noexcept {
  ++calls;
  if (auto* const observer = current.load()) {
    observer->on_collective(
        {.kind = static_cast<std::size_t>(kind_), .begin = begin_, .end = std::chrono::steady_clock::now()});
  }
  --calls;
}

}  // namespace detail
}  // namespace lockstep
