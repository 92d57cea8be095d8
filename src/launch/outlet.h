// A way out for the lines of ranks that never makes the supervisor wait.
#pragma once

#include <poll.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

/// A descriptor of this process, such as its stderr, behind a queue.
class Outlet {
 public:
  explicit Outlet(int fd) : fd_(fd) {}

  void add(std::string_view bytes) { queue_ += bytes; }
  bool is_empty() const { return queue_.empty(); }
  /// The error of the last write that was refused; 0: none was.
  int failure() const { return failure_; }
  /// Whether more should wait until somebody has read some.
  bool is_full() const { return queue_.size() > kEnough; }
  void add_to(std::vector<pollfd>& watched) const;
  /// Writes what can be written at once. What the other end refuses is lost: a full disk must not end a run.
  void flush();
  /// The same, but waits for a reader that is slow.
  void flush_within(std::chrono::milliseconds patience);

 private:
  static constexpr std::size_t kEnough = std::size_t{1} << 20;

  int fd_;
  int failure_ = 0;
  std::string queue_;
};

}  // namespace lockstep::launch
