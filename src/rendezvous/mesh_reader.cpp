#include "rendezvous/mesh_reader.h"

#include <algorithm>

namespace lockstep::rendezvous {
namespace {

using std::chrono::steady_clock;

constexpr auto kNap = std::chrono::milliseconds(50);  // of a reader, so that others' failures reach it

}  // namespace

void MeshReader::wait(Lock& lock, Deadline until) {
  const auto now = steady_clock::now();
  if (is_reading_) {
    changed_.wait_until(lock, std::min(std::max(until, now + std::chrono::microseconds(1)), now + kNap));
    return;
  }
  read(lock, std::min(until, now + kNap));
}

void MeshReader::poll(Lock& lock) {
  if (!is_reading_) read(lock, steady_clock::now());
}

void MeshReader::read(Lock& lock, Deadline until) {
  is_reading_ = true;
  lock.unlock();
  links_.read(until, events_);
  lock.lock();
  for (auto& event : events_) deliver_(std::move(event));
  events_.clear();
  is_reading_ = false;
  wake();
}

}  // namespace lockstep::rendezvous
