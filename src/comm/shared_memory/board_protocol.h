// How the members of a group show each other announcements in slots of their segments, over any memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace lockstep::detail {

/// Each member shows announcements number 1, 2, ... in slots that it uses in turn: whoever shows one has read
/// all those before the last one. So two slots suffice.
///
/// The first member may pass on to the others what goes with an announcement, when all have shown theirs: by
/// then they have read what it has passed on before. So one place suffices for that.
///
/// Segments has rank(), size(), announced(member), a flag that counts what that member has shown,
/// announcement(member, number), the place of it, relayed(), the first member's flag, and relay(), its place.
template <class Segments>
class BoardProtocol {
 public:
  /// Borrows the segments.
  explicit BoardProtocol(Segments& segments) : segments_(segments) {}

  /// Shows the others what `write` writes to the place that it is given.
  template <class Write>
  void show(const Write& write) {
    const auto number = shown() + 1;
    shown_.store(number, std::memory_order_relaxed);
    write(segments_.announcement(segments_.rank(), number));
    post(segments_.announced(segments_.rank()), number);
  }

  /// Whether `member` has shown as many announcements as this rank, and `more`. From any thread.
  bool has_shown(int member, std::uint64_t more = 0) const {
    return has_come_to(segments_.announced(member), shown() + more);
  }

  /// Where it shows the one that goes with this rank's last.
  auto place(int member) const { return segments_.announcement(member, shown()); }

  /// Waits for a moment until all members have shown as many as this rank. Returns whether they have.
  bool await_all() {
    for (int member = 0; member < segments_.size(); ++member) {
      if (member == segments_.rank()) continue;
      auto& flag = segments_.announced(member);
      if (!spin_until(flag, shown()) && !sleep_until(flag, shown())) return false;
    }
    return true;
  }

  /// The first member, when await_all() has returned true: passes on what `write` writes to the place that it
  /// is given.
  template <class Write>
  void relay(const Write& write) {
    write(segments_.relay());
    post(segments_.relayed(), shown());
  }

  /// Whether the first member has passed on what goes with this rank's last announcement, and waits for a
  /// moment until it has.
  bool has_relayed() const { return has_come_to(segments_.relayed(), shown()); }
  bool await_relay() {
    auto& flag = segments_.relayed();
    return spin_until(flag, shown()) || sleep_until(flag, shown());
  }

 private:
  std::uint64_t shown() const { return shown_.load(std::memory_order_relaxed); }

  Segments& segments_;
  std::atomic<std::uint64_t> shown_{0};
};

}  // namespace lockstep::detail
