#include "comm/transport/gloo/interruptible.h"

#include <stdexcept>

namespace lockstep::detail {
namespace {

constexpr auto kSlice = std::chrono::milliseconds(200);

// False when the time passed. c10d reports that as an error of its own, and the work may have ended since.
bool wait_for(c10d::Work& work, std::chrono::milliseconds time) {
  try {
    work.wait(time);
  } catch (const std::exception&) {
    if (!work.isCompleted()) return false;
    work.wait();
  }
  return true;
}

}  // namespace

void Interruptible::await_collective(const Work& work) {
  while (!is_aborted_) {
    if (wait_for(*work, kSlice)) return;
  }
  if (wait_for(*work, kSlice)) return;
  has_abandoned_ = true;
  throw std::runtime_error("Socket closed: the collective was aborted");
}

void Interruptible::await_message(const Work& work) {
  {
    const std::lock_guard lock(mutex_);
    messages_.push_back(work);
  }
  const auto forget = [&] {
    const std::lock_guard lock(mutex_);
    std::erase(messages_, work);
  };
  if (is_aborted_) work->abort();
  try {
    const bool is_complete = work->wait();
    if (!is_complete) throw std::runtime_error("Socket closed: the message was aborted");
  } catch (...) {
    forget();
    throw;
  }
  forget();
}

void Interruptible::abort() {
  is_aborted_ = true;
  const std::lock_guard lock(mutex_);
  for (const auto& work : messages_) work->abort();
}

}  // namespace lockstep::detail
