#include "launch/launcher_events.h"

namespace lockstep::launch {

void LauncherEvents::wait(std::vector<pollfd> watched, int timeout_ms) const {
  watched.push_back({.fd = signals_.fd(), .events = POLLIN, .revents = 0});
  for (const auto* observer : observers_) observer->add_to(watched);
  ::poll(watched.data(), watched.size(), timeout_ms);
  for (auto* observer : observers_) observer->look();
}

}  // namespace lockstep::launch
