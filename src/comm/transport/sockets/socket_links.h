// The connections of a group's rank with all others, driven by the threads that wait for transfers.
//
// There is no thread of its own: of the threads that wait one watches all connections, moves what can be
// moved for all of them, and hands over when its own transfers are complete.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <c10/util/FunctionRef.h>

#include <lockstep/base/export.h>
#include <lockstep/base/unique_fd.h>

#include "base/sockets.h"
#include "comm/fork_guard.h"
#include "comm/transport/sockets/socket_link.h"

namespace lockstep::detail {

/// Thread-safe. Of one call one thread at a time.
class LOCKSTEP_API SocketLinks {
 public:
  struct Options {
    std::chrono::milliseconds timeout = std::chrono::minutes(30);  ///< for a transfer that does not get on
    bool gives_notice = false;            ///< nothing is sent that the other rank has not posted
    std::vector<std::string> names = {};  ///< of the ranks, for errors: "rank 2"
  };

  /// Takes over connected, non-blocking sockets, by rank; none at the own place. Their copies are closed in
  /// forked children.
  SocketLinks(std::vector<UniqueFd> sockets, const Options& options);
  ~SocketLinks();
  SocketLinks(const SocketLinks&) = delete;
  SocketLinks& operator=(const SocketLinks&) = delete;

  int size() const { return static_cast<int>(links_.size()); }

  /// Belongs to `call`, which is waited for or given up. Returns at once.
  void post(int rank, const SocketSend& send);
  void post(int rank, std::uint32_t stream, const SocketReceive& receive);

  /// Blocks until `is_over()`, which is asked under the lock that guards `call`.
  /// @throws std::runtime_error when a peer of `call` is gone, nothing gets on for the timeout, or abort()
  ///   was called
  void wait(SocketCall& call, c10::function_ref<bool()> is_over);

  /// Drops what is left of `call`. Where that is anything, the other ranks can no longer be followed, and all
  /// that is under way fails.
  void give_up(SocketCall& call) noexcept;

  /// Makes what is under way fail, and all later waits. From any thread; does not block.
  void abort();

 private:
  using Lock = std::unique_lock<std::mutex>;

  SocketLink* link(int rank) { return links_[static_cast<std::size_t>(rank)].get(); }
  template <class Post>
  void post_and_start(int rank, const Post& post);
  void drive(Lock& lock, Deadline until);
  void watch();
  void wake() const;
  std::string awaited_by(const SocketCall& call) const;

  const std::chrono::milliseconds timeout_;
  std::vector<int> descriptors_;  // of the sockets, and wake_
  UniqueFd wake_;                 // readable when the one that watches is to look again
  std::atomic<bool> is_aborted_{false};

  std::mutex mutex_;                   // guards all below
  std::condition_variable has_moved_;  // for those who wait, but do not watch
  std::vector<std::unique_ptr<SocketLink>> links_;
  std::vector<pollfd> polled_;  // those of the links, by rank, and wake_
  bool is_watched_ = false;     // a thread is in poll()
  int waiting_ = 0;             // threads
  ForkGuard fork_guard_;
};

}  // namespace lockstep::detail
