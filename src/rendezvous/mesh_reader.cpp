#include "rendezvous/mesh_reader.h"

#include <algorithm>
#include <utility>

namespace lockstep::rendezvous {
namespace {

using std::chrono::steady_clock;

constexpr auto kNap = std::chrono::milliseconds(50);  // of a reader, so that others' failures reach it

// A thread's turn to read: without the lock, which it has again when the turn is over, however that ends.
class Turn {
 public:
  Turn(MeshReader::Lock& lock, bool& is_reading) : lock_(lock), is_reading_(is_reading) {
    is_reading_ = true;
    lock_.unlock();
  }
  ~Turn() {
    lock_.lock();
    is_reading_ = false;
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  MeshReader::Lock& lock_;
  bool& is_reading_;
};

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
  std::vector<PeerLinks::Event> events;
  events.swap(events_);  // keeps its memory from one turn to the next
  {
    const Turn turn(lock, is_reading_);
    links_.read(until, events);
  }
  for (auto& event : events) deliver_(std::move(event));
  events.clear();
  events.swap(events_);
  wake();
}

}  // namespace lockstep::rendezvous
