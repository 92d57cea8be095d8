#include "comm/collectives/measured_collective.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <vector>

namespace lockstep {
namespace {

// Read and written with the mutex held; how many there are can be read without.
struct Observers {
  std::shared_mutex mutex;
  std::vector<CollectiveObserver*> all;
  std::atomic<int> count{0};
};

// Never destroyed: threads may look at it while the process ends.
Observers& observers() {
  static auto* const all = new Observers;
  return *all;
}

std::int64_t bytes_of(const at::Tensor& one, const std::vector<at::Tensor>& several) {
  auto bytes = one.defined() ? one.nbytes() : 0;
  for (const auto& tensor : several) bytes += tensor.defined() ? tensor.nbytes() : 0;
  return static_cast<std::int64_t>(bytes);
}

std::int64_t bytes_of(const detail::Collective& collective) {
  const auto given = bytes_of(collective.input, collective.inputs);
  return given > 0 ? given : bytes_of(collective.output, collective.outputs);
}

}  // namespace

CollectiveObserver::~CollectiveObserver() = default;

std::span<const char* const> collective_names() {
  static const auto names = [] {
    std::array<const char*, detail::kCollectiveKinds> all{};
    for (std::size_t kind = 0; kind < all.size(); ++kind)
      all[kind] = detail::name_of(static_cast<detail::CollectiveKind>(kind));
    return all;
  }();
  return names;
}

ObservedCollectives::ObservedCollectives(CollectiveObserver& observer) : observer_(observer) {
  auto& [mutex, all, count] = observers();
  const std::unique_lock lock(mutex);
  all.push_back(&observer);
  ++count;
}

ObservedCollectives::~ObservedCollectives() {
  auto& [mutex, all, count] = observers();
  const std::unique_lock lock(mutex);
  all.erase(std::ranges::find(all, &observer_));
  --count;
}

namespace detail {

bool MeasuredCollective::is_observed() noexcept {
  return observers().count.load(std::memory_order_relaxed) != 0;
}

void MeasuredCollective::tell() const noexcept {
  const CollectiveEvent event{.kind = static_cast<std::size_t>(collective_.kind),
                              .begin = begin_,
                              .end = std::chrono::steady_clock::now(),
                              .bytes = bytes_of(collective_)};
  auto& [mutex, all, count] = observers();
  const std::shared_lock lock(mutex);
  for (auto* const observer : all) observer->on_collective(event);
}

}  // namespace detail
}  // namespace lockstep
