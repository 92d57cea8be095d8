// Waits for what a c10d backend does, until it is called off.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "comm/c10d.h"

namespace lockstep::detail {

/// Gloo can miss the end of a connection: a receive that is posted just when the other end dies waits for
/// the whole timeout, and no call reaches it. So nobody waits for Gloo itself who could not be called off.
class LOCKSTEP_API Interruptible {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;

  /// Blocks until the collective `work` is done; throws what it failed with. Once it was called off, and does
  /// not end by itself soon, throws while Gloo still has it in hand.
  void await_collective(const Work& work);

  /// The same for a message.
  void await_message(const Work& work);

  /// Calls off all that is awaited, now and later. Does not block.
  void call_off();

  /// Whether Gloo still had a collective in hand when its caller left. Its thread may then not be waited for.
  bool has_abandoned() const { return has_abandoned_; }

 private:
  std::atomic<bool> is_called_off_{false};
  std::atomic<bool> has_abandoned_{false};
  std::mutex mutex_;  // guards messages_
  std::vector<Work> messages_;
};

}  // namespace lockstep::detail
