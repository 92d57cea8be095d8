// Reads this rank's connections for all its threads.
//
// No thread is kept for it: whoever waits for something reads for everyone, one thread at a time; the others
// sleep until it has.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "rendezvous/peer_links.h"

namespace lockstep::rendezvous {

/// All is called with one lock held, which guards this, and is given up while a thread reads or sleeps.
class MeshReader {
 public:
  using Lock = std::unique_lock<std::mutex>;
  using Deliver = std::function<void(PeerLinks::Event)>;

  /// `deliver` is called with what has arrived, under the lock. It must not throw.
  MeshReader(PeerLinks& links, Deliver deliver) : links_(links), deliver_(std::move(deliver)) {}

  /// Returns when something has arrived or wake() was called; after 50 ms or at `until` in any case.
  void wait(Lock& lock, Deadline until);

  /// Delivers what has arrived by now, unless another thread reads.
  void poll(Lock& lock);

  /// Wakes all that sleep in wait().
  void wake() { changed_.notify_all(); }

 private:
  void read(Lock& lock, Deadline until);

  PeerLinks& links_;
  Deliver deliver_;
  std::condition_variable changed_;
  bool is_reading_ = false;               // a thread is in links_.read()
  std::vector<PeerLinks::Event> events_;  // empty; room for those of the next turn
};

}  // namespace lockstep::rendezvous
