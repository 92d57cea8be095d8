// The event loops of Gloo and libuv, which keep their descriptors to themselves.
//
// A loop watches its descriptors by epoll, and the system tells which these are, in /proc/self/fdinfo: so
// what belongs to a loop is known exactly, whatever other threads open at the same time.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string_view>
#include <vector>

namespace lockstep::detail {

/// Knows a loop of this process as long as that lives.
class EventLoop {
 public:
  /// The loops that watch a listening socket whose address, the bytes of a sockaddr, is wanted.
  static std::vector<EventLoop> find(const std::function<bool(std::string_view address)>& is_wanted);
  /// That of the server that listens on `port`.
  static std::vector<EventLoop> serving(int port);

  /// From now on its present descriptors are closed in programs that this process executes.
  void close_on_exec() const;
  /// Ends its connections: whoever waits for one, here or at its other end, sees it closed. The descriptors
  /// stay the loop's.
  void shut_down() const;
  /// In a forked child: closes the copies of its descriptors. The connections stay.
  void close_copies() const;

 private:
  struct Watched {
    int fd = -1;
    ino_t inode = 0;  ///< numbers are used again
  };

  explicit EventLoop(int epoll) : epoll_(epoll) {}
  std::vector<Watched> watched() const;
  std::vector<Watched> owned() const;

  int epoll_;
};

}  // namespace lockstep::detail
