// Waits for Gloo that abort() ends.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "comm/c10d.h"

namespace lockstep::detail {

/// Gloo can miss the end of a connection: a receive that is posted just when the other end dies waits for
/// the whole timeout, and no call reaches it. So nobody waits for Gloo itself without a way to stop.
class LOCKSTEP_API Interruptible {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;

  /// Blocks until the collective `work` is done; throws what it failed with. After abort(), a collective that
  /// does not end by itself soon makes this throw while Gloo still uses its tensors.
  void await_collective(const Work& work);

  /// The same for a message.
  void await_message(const Work& work);

  /// Ends all waits, those of now and later ones. Does not block.
  void abort();

  /// Whether a caller left while Gloo still used its tensors. Nobody may wait for Gloo's thread then.
  bool has_abandoned() const { return has_abandoned_; }

 private:
  std::atomic<bool> is_aborted_{false};
  std::atomic<bool> has_abandoned_{false};
  std::mutex mutex_;  // guards messages_
  std::vector<Work> messages_;
};

}  // namespace lockstep::detail
