// StreamGate: where a stream of a device waits for a thread of the host.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include <lockstep/base/export.h>

namespace lockstep {

/// A place in a stream of a device where the device waits for a thread of the host. A recorded step
/// (captured_step.h) comes to it again with each replay: the n-th open() is for the n-th time. Thread-safe.
class LOCKSTEP_API StreamGate {
 public:
  /// Blocks until the stream has come here, for the n-th time at the n-th call.
  void await_arrival();
  /// Lets the stream go on, now or when it comes.
  void open();

  /// For accelerators: the stream has come. Blocks until it may go on.
  void pass();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t awaited_ = 0, arrived_ = 0, opened_ = 0;
};

}  // namespace lockstep
