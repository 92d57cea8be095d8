// Pinned memory, from and to which streams copy while the host goes on. What a copy brings is seen by the
// host when it has waited for it, not before, and what a copy takes must be as it was until then: both
// whatever the delays are.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <ATen/core/CachingHostAllocator.h>

#include "sim/races.h"

namespace lockstep::sim {

struct HostCopy;

/// A copy to the host. Streams that read the memory see its bytes, too.
class Arrival {
 public:
  Arrival(const HostCopy& copy, int stream, std::uint64_t number);
  void* staging() { return bytes_.data(); }
  void mark_filled();
  void land();

  const Span span;
  const int stream;
  const std::uint64_t number;  ///< of the kernel in its stream

 private:
  std::mutex mutex_;
  std::vector<char> bytes_;
  bool is_filled_ = false, has_landed_ = false;
};

/// A copy from the host.
struct Departure {
  Span span;
  std::vector<char> bytes;  ///< as they were
  std::string op;
  int stream = 0;
  std::uint64_t number = 0;
};

/// Those that the host has not waited for. All with Runtime::mutex held.
class HostCopies {
 public:
  /// Arrivals that a kernel which touches `span` comes after.
  std::vector<std::shared_ptr<Arrival>> before(const Span& span) const;
  std::shared_ptr<Arrival> add_arrival(const HostCopy& copy, int stream, std::uint64_t number);
  void add_departure(const HostCopy& copy, const std::string& op, int stream, std::uint64_t number);
  /// A kernel lets the host write `span` in the order of its stream: copies from there come after.
  void add_ordered_write(const Span& span, int stream, std::uint64_t number) {
    ordered_writes_.push_back({.span = span, .stream = stream, .number = number, .op = "a gate"});
  }
  void add_retired(void* memory) { retired_.push_back(memory); }
  /// When the host knows more than before.
  void settle();

 private:
  std::vector<std::shared_ptr<Arrival>> arrivals_;
  std::vector<Departure> departures_;
  std::vector<Access> ordered_writes_;
  std::vector<void*> retired_;  ///< freed by the program
};

bool is_pinned(const void* memory);

/// The allocator of pinned tensors.
at::HostAllocator& pinned_allocator();

}  // namespace lockstep::sim
