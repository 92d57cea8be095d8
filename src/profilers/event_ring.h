// A ring buffer of the last events of one thread, which writes without waiting while another thread reads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// A call that is over, or the value of a counter.
struct TraceEvent {
  enum class Kind : std::uint32_t { kCall, kCounter };

  std::int64_t begin_ns;  ///< on the steady clock
  std::int64_t value;     ///< of a call its nanoseconds, of a counter the bits of its double
  std::uint32_t action;   ///< Action::index()
  Kind kind;
};

class LOCKSTEP_API EventRing {
 public:
  /// Keeps at least `capacity` events (24 bytes each; pages are taken as they fill).
  explicit EventRing(std::size_t capacity);

  /// Adds an event, over the oldest one if need be. For one thread.
  void push(const TraceEvent& event) noexcept;

  struct Taken {
    std::vector<TraceEvent> events;  ///< in the order of push()
    std::uint64_t dropped = 0;       ///< older ones that were written over
  };
  /// What came since the last take(). For any thread, one at a time.
  Taken take();

 private:
  TraceEvent& slot(std::uint64_t number) { return events_[number & mask_]; }

  std::uint64_t mask_;
  std::unique_ptr<TraceEvent[]> events_;
  std::atomic<std::uint64_t> begun_{0};  // events whose writing has begun
  std::atomic<std::uint64_t> done_{0};   // events that are written
  std::uint64_t taken_ = 0;
};

}  // namespace lockstep::detail
