#include <lockstep/device/stream_gate.h>

namespace lockstep {

// A stream that may go on need not be waited for: nobody will read what it brings.
void StreamGate::await_arrival() {
  std::unique_lock lock(mutex_);
  const auto turn = ++awaited_;
  changed_.wait(lock, [&] { return arrived_ >= turn || opened_ >= turn; });
}

void StreamGate::open() {
  {
    const std::lock_guard lock(mutex_);
    ++opened_;
  }
  changed_.notify_all();
}

void StreamGate::pass() {
  std::unique_lock lock(mutex_);
  const auto turn = ++arrived_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return opened_ >= turn; });
}

}  // namespace lockstep
