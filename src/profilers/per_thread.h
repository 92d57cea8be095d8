// One T per recording thread, found without a lock. A T outlives its thread, and is reused by a later thread
// of the same name: the memory for many short-lived threads is bounded by how many exist at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep::detail {

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

}  // namespace lockstep::detail
