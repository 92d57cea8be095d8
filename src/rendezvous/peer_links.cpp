#include "rendezvous/peer_links.h"

#include <algorithm>
#include <utility>

namespace lockstep::rendezvous {

PeerLinks::PeerLinks(std::vector<UniqueFd> sockets) {
  for (auto& socket : sockets) {
    polled_.push_back({.fd = socket.get(), .events = POLLIN, .revents = 0});
    links_.push_back(socket ? std::make_unique<Connection>(std::move(socket)) : nullptr);
  }
}

void PeerLinks::send(int rank, const Header& header, std::string_view payload, Deadline deadline) {
  if (const auto& link = links_[static_cast<std::size_t>(rank)]) (void)link->send(header, payload, deadline);
}

void PeerLinks::read(Deadline until, std::vector<Event>& events) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
  const auto timeout_ms = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1 << 30));
  if (::poll(polled_.data(), polled_.size(), timeout_ms) <= 0) return;
  for (std::size_t rank = 0; rank < links_.size(); ++rank) {
    if (polled_[rank].fd < 0 || polled_[rank].revents == 0) continue;
    messages_.clear();
    const bool is_open = links_[rank]->receive(messages_);
    for (auto& message : messages_) events.push_back({static_cast<int>(rank), std::move(message)});
    if (is_open) continue;
    polled_[rank].fd = -1;
    events.push_back({static_cast<int>(rank), std::nullopt});
  }
}

}  // namespace lockstep::rendezvous
