#include "comm/group/group_identity.h"

#include <algorithm>
#include <numeric>

#include "rendezvous/message.h"

namespace lockstep::detail {
namespace {

constexpr std::size_t kMostListed = 16;

// FNV-1a, a byte at a time.
void mix(std::uint64_t& hash, std::uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) {
    hash = (hash ^ ((value >> shift) & 0xff)) * 0x100000001b3;
  }
}

}  // namespace

GroupIdentity identity_of_job(int rank, int world_size, std::uint64_t id) {
  std::vector<int> ranks(static_cast<std::size_t>(world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return {.id = id, .rank = rank, .global_ranks = std::move(ranks)};
}

GroupIdentity identity_of_subgroup(const GroupIdentity& parent, std::span<const int> members, int number) {
  GroupIdentity identity{.id = 0xcbf29ce484222325, .global_ranks = {}};
  mix(identity.id, parent.id);
  mix(identity.id, static_cast<std::uint64_t>(number));
  for (const int member : members) {
    identity.global_ranks.push_back(parent.global_rank(member));
    mix(identity.id, static_cast<std::uint64_t>(member));
  }
  identity.rank = static_cast<int>(std::ranges::find(members, parent.rank) - members.begin());
  identity.number = number + 1;
  identity.name = list_of(identity.global_ranks);
  return identity;
}

std::uint64_t id_of_messages(const GroupIdentity& group, int source, int destination, int tag) {
  std::uint64_t id = group.id;
  for (const int part : {source, destination, tag}) mix(id, static_cast<std::uint64_t>(part));
  return id;
}

std::uint64_t id_of_monitored_barrier(const GroupIdentity& group) {
  std::uint64_t id = group.id;
  mix(id, 0x6d6f6e69746f72);  // "monitor"
  return id;
}

std::string list_of(std::span<const int> ranks) {
  auto text = rendezvous::joined(ranks.first(std::min(ranks.size(), kMostListed)));
  if (ranks.size() > kMostListed) text += ", and " + std::to_string(ranks.size() - kMostListed) + " more";
  return "{" + text + "}";
}

}  // namespace lockstep::detail
