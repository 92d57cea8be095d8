#include "sim/host_copies.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "sim/runtime.h"

namespace lockstep::sim {
namespace {

constexpr std::size_t kAlignment = 64;

Span span_of(const HostCopy& copy) {
  const auto begin = reinterpret_cast<std::uintptr_t>(copy.memory);
  return {.begin = begin, .end = begin + copy.bytes, .is_written = copy.arrives};
}

void compare(const Departure& departure) {
  const auto* const now = reinterpret_cast<const char*>(departure.span.begin);
  if (std::memcmp(now, departure.bytes.data(), departure.bytes.size()) == 0) return;
  report("pinned memory: the host writes what " + departure.op + " reads on " +
         stream_name(departure.stream) + "; it has not waited for the copy");
}

void retire(void* memory) {
  const std::lock_guard lock(runtime().mutex);
  runtime().host_copies.add_retired(memory);
  runtime().host_copies.settle();
}

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(std::size_t asked) override {
    const auto bytes = std::max(kAlignment, (asked + kAlignment - 1) / kAlignment * kAlignment);
    void* const memory = std::aligned_alloc(kAlignment, bytes);
    const auto begin = reinterpret_cast<std::uintptr_t>(memory);
    const std::lock_guard lock(runtime().mutex);
    runtime().blocks.emplace(begin, Block{.begin = begin, .bytes = bytes, .device = kHostDevice});
    return {memory, memory, &retire, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &retire; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};

}  // namespace

Arrival::Arrival(const HostCopy& copy, int of_stream, std::uint64_t of_number)
    : span(span_of(copy)), stream(of_stream), number(of_number), bytes_(copy.bytes) {}

void Arrival::mark_filled() {
  const std::lock_guard lock(mutex_);
  is_filled_ = true;
}

void Arrival::land() {
  const std::lock_guard lock(mutex_);
  if (!is_filled_ || std::exchange(has_landed_, true)) return;
  std::memcpy(reinterpret_cast<void*>(span.begin), bytes_.data(), bytes_.size());
}

std::vector<std::shared_ptr<Arrival>> HostCopies::before(const Span& span) const {
  std::vector<std::shared_ptr<Arrival>> found;
  std::ranges::copy_if(arrivals_, std::back_inserter(found),
                       [&](const auto& arrival) { return overlap(arrival->span, span); });
  return found;
}

// The memory looks unlike anything until the host has waited, unless an earlier replay of the same work may
// still use it.
std::shared_ptr<Arrival> HostCopies::add_arrival(const HostCopy& copy, int stream, std::uint64_t number) {
  auto arrival = std::make_shared<Arrival>(copy, stream, number);
  const auto is_left = std::erase_if(departures_, [&](const Departure& departure) {
    if (!overlap(departure.span, arrival->span)) return false;
    compare(departure);
    return true;
  });
  const bool is_in_use = std::ranges::any_of(
      ordered_writes_, [&](const Access& write) { return overlap(write.span, arrival->span); });
  if (is_left == 0 && !is_in_use) std::memset(copy.memory, 0xff, copy.bytes);
  arrivals_.push_back(arrival);
  return arrival;
}

// What streams have brought there, and the host has not waited for, changes later.
void HostCopies::add_departure(const HostCopy& copy, const std::string& op, int stream,
                               std::uint64_t number) {
  const auto span = span_of(copy);
  const auto is_written_later = [&](const Access& write) { return overlap(write.span, span); };
  if (!before(span).empty() || std::ranges::any_of(ordered_writes_, is_written_later)) return;
  departures_.push_back({.span = span,
                         .bytes = std::vector<char>(copy.memory, copy.memory + copy.bytes),
                         .op = op,
                         .stream = stream,
                         .number = number});
}

void HostCopies::settle() {
  auto& all = runtime();
  std::erase_if(departures_, [&](const Departure& departure) {
    if (all.host[departure.stream] < departure.number) return false;
    compare(departure);
    return true;
  });
  std::erase_if(ordered_writes_, [&](const Access& write) { return all.host[write.stream] >= write.number; });
  std::erase_if(arrivals_, [&](const auto& arrival) {
    if (all.host[arrival->stream] < arrival->number) return false;
    arrival->land();
    return true;
  });
  std::erase_if(retired_, [&](void* memory) {
    const auto block = all.blocks.find(reinterpret_cast<std::uintptr_t>(memory));
    if (!block->second.history.is_over(all.host)) return false;
    all.blocks.erase(block);
    std::free(memory);
    return true;
  });
}

bool is_pinned(const void* memory) {
  if (!is_installed()) return false;
  const std::lock_guard lock(runtime().mutex);
  const auto* const block = find_block(reinterpret_cast<std::uintptr_t>(memory));
  return block != nullptr && block->device == kHostDevice;
}

at::HostAllocator& pinned_allocator() {
  static PinnedAllocator allocator;
  return allocator;
}

}  // namespace lockstep::sim
