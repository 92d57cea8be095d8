// Forks of a rank.
//
// A forked child has copies of all sockets, but none of the threads. Copies that stay open keep the death of
// the rank from its peers, and a child that ended its copies of the groups would wait for threads that are
// not there, and speak for its parent. So the child loses its copies of the sockets, and its groups are dead.
#pragma once

#include <sys/types.h>

#include <functional>

namespace lockstep::detail {

/// Calls `let_go` in every child that this process forks during its life. It may close descriptors, no more.
class ForkGuard {
 public:
  explicit ForkGuard(std::function<void()> let_go);
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

 private:
  friend struct ForkGuards;
  std::function<void()> let_go_;
};

/// The process in which this was made.
class HomeProcess {
 public:
  HomeProcess();
  bool is_this() const;
  /// @throws CommError in a forked child
  void require() const;

 private:
  int generation_;
  pid_t pid_;
};

}  // namespace lockstep::detail
