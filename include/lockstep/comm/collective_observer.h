// Who watches the collectives of this process, such as a profiler.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include <lockstep/base/export.h>

namespace lockstep {

/// A collective or message that has ended on this rank, well or not.
struct CollectiveEvent {
  std::size_t kind = 0;                              ///< its place in collective_names()
  std::chrono::steady_clock::time_point begin = {};  ///< its turn had come: what was issued before was done
  std::chrono::steady_clock::time_point end = {};    ///< when it was done
  std::int64_t bytes = 0;  ///< of the tensors that this rank gives, or of those that it gets if it gives none
};

/// "all_reduce", "broadcast" and so on; kinds that take lists are called as those that do not.
LOCKSTEP_API std::span<const char* const> collective_names();

/// Derive to see collectives.
class LOCKSTEP_API CollectiveObserver {
 public:
  virtual ~CollectiveObserver();
  /// Called in the thread that carried the collective out, of any group. Must neither wait nor call
  /// collectives.
  virtual void on_collective(const CollectiveEvent& event) noexcept = 0;
};

/// While it lives, `observer` sees the collectives of this process, as do those of other scopes; its end
/// waits until none is being called. Without any a collective pays for a test of a number.
class LOCKSTEP_API ObservedCollectives {
 public:
  explicit ObservedCollectives(CollectiveObserver& observer);
  ~ObservedCollectives();
  ObservedCollectives(const ObservedCollectives&) = delete;
  ObservedCollectives& operator=(const ObservedCollectives&) = delete;

 private:
  CollectiveObserver& observer_;
};

}  // namespace lockstep
