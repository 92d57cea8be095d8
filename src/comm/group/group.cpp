#include "comm/group/group.h"

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

// The group of a rank alone: a world of one, or a sub-group of one rank.
class SingleGroup final : public Group {
 public:
  explicit SingleGroup(GroupIdentity identity) : Group(std::move(identity), kCollectiveDevices) {}

  std::string backend() const override { return "single"; }
  std::chrono::milliseconds timeout() const override { return std::chrono::milliseconds::max(); }
  std::uint64_t bytes_sent() const override { return 0; }
  std::string activity() const override { return ""; }
  void close() override {}

  // Gathering and scattering among one are copies; the rest leaves its tensor as it is.
  void run(const Collective& collective) override {
    const auto& input = collective.inputs.empty() ? collective.input : collective.inputs.front();
    const auto& output = collective.outputs.empty() ? collective.output : collective.outputs.front();
    if (!input.defined()) return;
    const at::NoGradGuard no_grad;
    output.copy_(input.reshape(output.sizes()));
  }

  std::shared_ptr<Pending> start(const Collective& collective) override {
    run(collective);
    return nullptr;
  }

  std::shared_ptr<Group> make_subgroup(std::span<const int> members, int number) override {
    return single_group(identity_of_subgroup(identity(), members, number));
  }
};

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

std::shared_ptr<Group> single_group(GroupIdentity identity) {
  return std::make_shared<SingleGroup>(std::move(identity));
}

}  // namespace lockstep::detail
