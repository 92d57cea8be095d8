// What profilers hold of each thread, with bounded memory: an object that is found without a lock, which has
// the statistics of the calls of each action, or the last events.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/profilers/profiler.h>

namespace lockstep::detail {

// One T per recording thread, found without a lock. A T outlives its thread, and is reused by a later thread
// of the same name: the memory for many short-lived threads is bounded by how many exist at once.

/// This thread's claim on an object of `owner`; `in_use` becomes false when the thread ends.
struct ThreadLease {
  std::uint64_t owner;
  void* object;
  std::shared_ptr<std::atomic<bool>> in_use;
};

/// The object that this thread asked for last.
struct LastObject {
  std::uint64_t owner = 0;
  void* object = nullptr;
};
LOCKSTEP_API extern constinit thread_local LastObject last_object;

/// The object that this thread has of `owner`, or null; sets last_object.
LOCKSTEP_API void* leased_object(std::uint64_t owner) noexcept;
/// Stores `lease` until this thread ends. Returns false when the thread is ending already.
LOCKSTEP_API bool keep_lease(const ThreadLease& lease);
/// A number that no other owner in this process gets.
LOCKSTEP_API std::uint64_t next_owner();
/// "main", or what pthread_setname_np gave this thread.
LOCKSTEP_API std::string current_thread_name();

template <class T>
class PerThread {
 public:
  using Make = std::function<std::unique_ptr<T>()>;

  explicit PerThread(Make make = [] { return std::make_unique<T>(); }) : make_(std::move(make)) {}

  /// This thread's T. Takes a lock the first time; null when memory is short then, or the thread is ending.
  T* local() noexcept {
    if (last_object.owner == owner_) return static_cast<T*>(last_object.object);
    if (void* object = leased_object(owner_)) return static_cast<T*>(object);
    try {
      return lease();
    } catch (const std::exception&) {
      return nullptr;
    }
  }

  /// Calls `visit(name of the thread, T&)` for each; a thread's first local() waits meanwhile.
  template <class Visit>
  void for_each(Visit visit) const {
    const std::lock_guard lock(mutex_);
    for (const auto& place : places_) visit(place.thread, *place.object);
  }

 private:
  struct Place {
    std::string thread;
    std::shared_ptr<std::atomic<bool>> in_use;
    std::unique_ptr<T> object;
  };

  T* lease() {
    const auto name = current_thread_name();
    const std::lock_guard lock(mutex_);
    Place& place = free_place(name);
    if (!keep_lease({owner_, place.object.get(), place.in_use})) return nullptr;
    place.in_use->store(true, std::memory_order_relaxed);
    return static_cast<T*>(leased_object(owner_));
  }

  // Acquire makes the writes of the previous thread visible to this one.
  Place& free_place(const std::string& name) {
    for (auto& place : places_) {
      if (place.thread == name && !place.in_use->load(std::memory_order_acquire)) return place;
    }
    places_.push_back({name, std::make_shared<std::atomic<bool>>(false), make_()});
    return places_.back();
  }

  Make make_;
  std::uint64_t owner_ = next_owner();
  mutable std::mutex mutex_;
  std::vector<Place> places_;
};

template <class T>
class ActionTable {
 public:
  ActionTable() = default;
  ActionTable(const ActionTable&) = delete;
  ActionTable& operator=(const ActionTable&) = delete;
  ~ActionTable() {
    for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
      Entry* const entries = chunks_[chunk].load(std::memory_order_relaxed);
      for (std::size_t i = 0; entries && i < kFirst << chunk; ++i) delete entries[i].load();
      delete[] entries;
    }
  }

  /// The entry of the action with this index, created at first use; null when memory is short. Only for the
  /// thread that owns the table.
  T* at(std::uint32_t index) noexcept {
    const auto [chunk, offset] = place(index);
    Entry* entries = chunks_[chunk].load(std::memory_order_relaxed);
    if (!entries) entries = publish(chunks_[chunk], new (std::nothrow) Entry[kFirst << chunk]());
    if (!entries) return nullptr;
    T* const value = entries[offset].load(std::memory_order_relaxed);
    return value ? value : publish(entries[offset], new (std::nothrow) T);
  }

  /// The same entry; null when it does not exist. For any thread.
  const T* find(std::uint32_t index) const noexcept {
    const auto [chunk, offset] = place(index);
    const Entry* const entries = chunks_[chunk].load(std::memory_order_acquire);
    return entries ? entries[offset].load(std::memory_order_acquire) : nullptr;
  }

 private:
  using Entry = std::atomic<T*>;
  struct Place {
    std::size_t chunk;
    std::size_t offset;
  };
  static constexpr std::size_t kFirst = 64;  // entries of the first chunk; each next one has twice as many

  static Place place(std::uint32_t index) {
    const auto chunk = static_cast<std::size_t>(std::bit_width(index / kFirst + 1)) - 1;
    return {chunk, index - kFirst * ((std::size_t{1} << chunk) - 1)};
  }

  template <class Value>
  static Value* publish(std::atomic<Value*>& to, Value* value) {
    to.store(value, std::memory_order_release);
    return value;
  }

  std::array<std::atomic<Entry*>, 27> chunks_ = {};
};

/// A number that one thread changes while others read it.
class Tally {
 public:
  explicit Tally(std::uint64_t value = 0) : value_(value) {}
  std::uint64_t get() const { return value_.load(std::memory_order_relaxed); }
  void set(std::uint64_t value) { value_.store(value, std::memory_order_relaxed); }
  void add(std::uint64_t more) { set(get() + more); }

 private:
  std::atomic<std::uint64_t> value_;
};

/// The number of calls and their total duration.
class CallTotal {
 public:
  void add(std::chrono::nanoseconds duration) noexcept {
    calls_.add(1);
    total_ns_.add(static_cast<std::uint64_t>(duration.count()));
  }
  void merge(const CallTotal& other) noexcept {
    calls_.add(other.calls_.get());
    total_ns_.add(other.total_ns_.get());
  }

  std::uint64_t calls() const { return calls_.get(); }
  double total_s() const { return 1e-9 * static_cast<double>(total_ns_.get()); }
  double mean_s() const { return total_s() / static_cast<double>(calls()); }

 private:
  Tally calls_;
  Tally total_ns_;
};

/// The distribution of durations: a histogram of 23 KB, as HdrHistogram's with 64 steps per power of two.
/// Minimum and maximum are exact; a quantile is exact below 128 ns and else, up to 13 days, within 1/128 of
/// its value.
class LOCKSTEP_API DurationHistogram {
 public:
  void add(std::chrono::nanoseconds duration) noexcept;
  void merge(const DurationHistogram& other) noexcept;

  const CallTotal& total() const { return total_; }
  std::uint64_t calls() const { return total_.calls(); }
  double min_s() const { return 1e-9 * static_cast<double>(min_ns_.get()); }
  double max_s() const { return 1e-9 * static_cast<double>(max_ns_.get()); }
  /// The duration that the part `q` of the calls, in (0, 1], did not exceed.
  double quantile_s(double q) const;

 private:
  static constexpr int kLongest = 50;  // bits; longer durations count as 2^50 ns
  static constexpr std::size_t kSteps = 64;

  static std::size_t step_of(std::uint64_t ns);
  static double middle_ns(std::size_t step);
  void widen(std::uint64_t least_ns, std::uint64_t most_ns) noexcept;

  CallTotal total_;
  Tally min_ns_{UINT64_MAX};
  Tally max_ns_;
  std::array<Tally, kSteps*(kLongest - 5)> steps_;
};

template <class Stats>
class CallStore {
 public:
  void add(Action action, std::chrono::nanoseconds duration) noexcept {
    auto* const table = threads_.local();
    auto* const stats = table ? table->at(action.index()) : nullptr;
    if (stats) stats->add(std::max(duration, std::chrono::nanoseconds(0)));
  }

  struct Row {
    Action action;
    std::unique_ptr<Stats> stats;
  };

  /// Of each action that was called, summed over the threads.
  std::vector<Row> rows() const {
    std::vector<Row> rows;
    for (const Action action : Action::all()) {
      auto sum = std::make_unique<Stats>();
      threads_.for_each([&](const auto&, const ActionTable<Stats>& table) {
        if (const Stats* stats = table.find(action.index())) sum->merge(*stats);
      });
      if (sum->calls() > 0) rows.push_back({action, std::move(sum)});
    }
    return rows;
  }

 private:
  PerThread<ActionTable<Stats>> threads_;
};

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
