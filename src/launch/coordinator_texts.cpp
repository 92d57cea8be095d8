// The messages of the coordinator to users.
#include <algorithm>

#include "launch/coordinator.h"
#include "rendezvous/addresses.h"

namespace lockstep::launch {
namespace {

std::string number_text(std::size_t count, const std::string& word) {
  return std::to_string(count) + " " + word + (count == 1 ? "" : "s");
}

std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string seconds_text(std::chrono::milliseconds time) {
  const auto ms = time.count();
  return ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
}

}  // namespace

std::string Coordinator::name_of(const Member& member) const {
  const auto rank =
      member.request.node_rank >= 0 ? std::optional(member.request.node_rank) : member.node_rank;
  return (rank ? "node " + std::to_string(*rank) : "a new node") + " (host " + member.request.host +
         ", launcher's pid " + std::to_string(member.request.pid) + ")";
}

// The node numbers of a static job with which no node has joined.
std::vector<int> Coordinator::absent_numbers() const {
  std::vector<int> absent;
  for (int rank = 0; options_.is_static && rank < options_.max_nodes; ++rank)
    if (std::ranges::none_of(members_,
                             [&](const auto& each) { return each.second.request.node_rank == rank; }))
      absent.push_back(rank);
  return absent;
}

// The nodes that have joined, and those that are missing, as text.
std::string Coordinator::absent_text() const {
  std::vector<std::string> here, absent = lost_;
  for (const auto& [node, member] : members_)
    (member.state == State::kJoined ? here : absent).push_back(name_of(member));
  for (const int rank : absent_numbers()) {
    const auto is_it = [name = "node " + std::to_string(rank) + " "](const std::string& text) {
      return text.starts_with(name);
    };
    if (std::ranges::none_of(absent, is_it)) absent.push_back("node " + std::to_string(rank));
  }
  return number_text(here.size(), "node") + " of at least " + std::to_string(options_.min_nodes) +
         " joined within " + seconds_text(options_.join_timeout) + (here.empty() ? "" : ": " + listed(here)) +
         (absent.empty() ? "" : "; absent: " + listed(absent));
}

std::string Coordinator::waiting_text() const {
  std::vector<std::string> awaited;
  for (const auto& [node, member] : members_)
    if (member.state == State::kStopping) awaited.push_back(name_of(member) + ", which stops its ranks");
  for (const int rank : absent_numbers())
    awaited.push_back("node " + std::to_string(rank) + " of " + std::to_string(options_.max_nodes));
  const auto least = static_cast<std::size_t>(options_.min_nodes);
  if (!options_.is_static && members_.size() < least)
    awaited.push_back(number_text(least - members_.size(), "more node") + ", of at least " +
                      std::to_string(least));
  if (awaited.empty()) awaited.push_back("more nodes, of at most " + std::to_string(options_.max_nodes));
  return "waiting at " + rendezvous::TcpEndpoint{options_.host, options_.port}.text() + " for " +
         listed(awaited);
}

}  // namespace lockstep::launch
