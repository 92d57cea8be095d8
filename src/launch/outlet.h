// Ways out for the lines of ranks: one that never makes the supervisor wait, and one for several ranks, in
// which no line is cut by another one's.
#pragma once

#include <poll.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "launch/posix.h"

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

/// A line may come in parts. While one is under way, whole lines of others are kept until it ends; it is cut
/// when nothing has come of it for a second while others wait, or when it never ends. Nothing here blocks but
/// flush_within().
class LineOutlet {
 public:
  using Writer = const void*;  ///< tells them apart

  /// @throws Error without descriptors
  explicit LineOutlet(int fd);

  /// The next part of the line of `writer`; `ends`: its last one. Only who is_free_for() may add one that
  /// does not end. A line feed that the last one lacks is written before whatever comes next.
  void add(Writer writer, std::string_view part, bool ends);
  /// A line of nobody's, which is not kept waiting.
  void say(std::string_view line);

  /// Whether the next part of `writer` goes on with a line that has begun.
  bool is_amid(Writer writer) const { return owner_ == writer; }
  bool is_free_for(Writer writer) const { return owner_ == nullptr || owner_ == writer; }
  /// Whether `writer` should wait until somebody has read some.
  bool is_full_for(Writer writer) const;

  bool is_empty() const { return out_.is_empty() && held_.empty(); }
  /// As Outlet's.
  int failure() const { return out_.failure(); }

  void add_to(std::vector<pollfd>& watched) const;
  void look();
  /// Ends the line that is under way.
  void cut();
  /// As Outlet's.
  void flush_within(std::chrono::milliseconds patience) { out_.flush_within(patience); }

 private:
  void put(std::string_view part);
  void release();
  void start_timer();

  Outlet out_;
  UniqueFd timer_;
  Writer owner_ = nullptr;  ///< of the line that is under way
  std::size_t length_ = 0;  ///< of it so far, in bytes
  bool lacks_end_ = false;  ///< what was written last was no whole line
  std::string held_;        ///< lines of others that wait for its end
};

}  // namespace lockstep::launch
