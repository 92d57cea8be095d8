#include "comm/group/agreement.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include <lockstep/base/error.h>

#include "comm/collectives/signature.h"
#include "comm/waiting.h"
#include "rendezvous/message.h"

namespace lockstep::detail {
namespace {

using rendezvous::Meeting;
using Numbers = std::vector<std::int64_t>;

constexpr auto kExplanationPatience = std::chrono::milliseconds(300);
constexpr auto kLongest = std::chrono::years(10);

SignatureBytes signature_bytes(const Lane& lane, const Collective& collective) {
  return std::bit_cast<SignatureBytes>(signature_of(collective, lane.members));
}

// Messages have no sequence number: the connection between two ranks keeps their order.
rendezvous::Announcement announcement(Lane& lane, const Collective& collective) {
  return {.group = lane.id,
          .sequence = lane.is_of_messages() ? 0 : ++lane.announced,
          .what = signature_bytes(lane, collective)};
}

// The timeout may be the longest there is, which cannot be added to the time of a clock.
Deadline deadline_after(std::chrono::milliseconds timeout) {
  return std::chrono::steady_clock::now() + std::min<std::chrono::milliseconds>(timeout, kLongest);
}

// What a member may bring along where this one brings `own`: of a broadcast the others bring nothing.
std::size_t most_payload(const Collective& collective, std::string_view own) {
  const auto& operand = operand_of(collective);
  const bool may_bring_it = row_of(collective.kind).can_be_inline && operand.defined();
  return may_bring_it ? std::max(own.size(), operand.nbytes()) : own.size();
}

class LaneCaller final : public rendezvous::Caller {
 public:
  LaneCaller(const JobMesh& job, const Lane& lane) : job_(job), lane_(lane) {}
  std::optional<std::chrono::milliseconds> is_stuck_after() const override {
    return job_.is_stuck_after(lane_);
  }
  bool has_given_up() const override { return lane_.is_closing; }

 private:
  const JobMesh& job_;
  const Lane& lane_;
};

// Shows what the members of a collective agreed on, one of which has not come so far in it.
class LateMember final : public rendezvous::AnnouncementBoard {
 public:
  LateMember(const rendezvous::Announcement& agreed, int rank, Flag& flag, std::uint64_t value)
      : agreed_(agreed), rank_(rank), flag_(flag), value_(value) {}

  void show(const rendezvous::Announcement& /*agreed*/, std::string_view /*nothing*/) override {}
  const rendezvous::Announcement* front(int rank) const override {
    return rank != rank_ || has_come_to(flag_, value_) ? &agreed_ : nullptr;
  }
  std::string_view payload(int /*rank*/) const override { return {}; }
  bool await_all() override { return sleep_until(flag_, value_); }
  bool is_ahead(int /*rank*/) const override { return false; }

 private:
  const rendezvous::Announcement& agreed_;
  int rank_;
  Flag& flag_;
  std::uint64_t value_;
};

// How many bytes each member gives to, and expects from, each other one.
class Traffic {
 public:
  explicit Traffic(std::size_t members) : members_(members), said_(members * row()) {}

  /// What member `member` said: bytes given to each, then bytes expected from each.
  void put(int member, std::string_view payload) {
    if (payload.size() != row() * sizeof(std::int64_t)) return;
    std::memcpy(&said_[static_cast<std::size_t>(member) * row()], payload.data(), payload.size());
  }

  /// The first two members that differ: giver and receiver. Each member finds the same.
  std::optional<std::pair<std::size_t, std::size_t>> difference() const {
    for (std::size_t giver = 0; giver < members_; ++giver) {
      for (std::size_t receiver = 0; receiver < members_; ++receiver) {
        if (given(giver, receiver) != expected(receiver, giver)) return std::pair(giver, receiver);
      }
    }
    return std::nullopt;
  }

  std::int64_t given(std::size_t by, std::size_t to) const { return said_[by * row() + to]; }
  std::int64_t expected(std::size_t by, std::size_t from) const {
    return said_[by * row() + members_ + from];
  }

 private:
  std::size_t row() const { return 2 * members_; }

  std::size_t members_;
  Numbers said_;
};

std::string_view as_payload(const Numbers& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size() * sizeof(std::int64_t)};
}

std::string barrier_key(int member) { return "monitored_barrier/" + std::to_string(member); }

}  // namespace

Agreement::Agreement(std::shared_ptr<JobMesh> job, GroupIdentity identity, std::chrono::milliseconds timeout)
    : job_(std::move(job)), identity_(std::move(identity)), timeout_(timeout) {}

void Agreement::reach(Lane& lane, const Collective& collective) {
  if (collective.kind == CollectiveKind::kMonitoredBarrier) return meet_within(lane, collective);
  const auto bytes_moved = row_of(collective.kind).bytes_moved;
  if (bytes_moved)
    return compare_sizes(lane, collective, bytes_moved(collective, identity_.rank, identity_.size()));
  reach(lane, collective, {}, {});
}

void Agreement::reach(Lane& lane, const Collective& collective, std::string_view bytes, const Take& take) {
  const auto what = announcement(lane, collective);
  if (!lane.is_of_messages()) last_ = what;
  const LaneCaller caller(*job_, lane);
  const Meeting meeting{.announcement = what,
                        .members = lane.members,
                        .home = identity_.id,
                        .payload = bytes,
                        .deadline = deadline_after(timeout_),
                        .caller = &caller,
                        .board = lane.is_of_messages() ? nullptr : board_,
                        .hosts = lane.is_of_messages() ? nullptr : hosts_,
                        .most_payload = take ? most_payload(collective, bytes) : 0,
                        .keeps_group = !lane.is_of_messages()};
  if (!take) return job_->mesh().meet(meeting);
  job_->mesh().meet(meeting, [&](int rank, std::string_view payload) {
    take(static_cast<int>(std::ranges::find(lane.members, rank) - lane.members.begin()), payload);
  });
}

void Agreement::use(const Lane& lane, rendezvous::AnnouncementBoard& board) {
  board_ = &board;
  job_->mesh().use_board(lane.id, board);
}

void Agreement::use(const Lane& lane, const rendezvous::Hosts& hosts) {
  board_ = hosts.board;
  hosts_ = &hosts;
  job_->mesh().use_hosts(lane.id, hosts);
}

void Agreement::await_late(const Lane& lane, int member, Flag& flag, std::uint64_t value) {
  const LaneCaller caller(*job_, lane);
  LateMember late(last_, lane.members[static_cast<std::size_t>(member)], flag, value);
  job_->mesh().await_board({.announcement = last_,
                            .members = lane.members,
                            .home = identity_.id,
                            .deadline = deadline_after(timeout_),
                            .caller = &caller,
                            .board = &late,
                            .is_again = true});
}

// Monitored barriers meet under an id of their own, so that a missing rank does not hold up the group's other
// collectives.
void Agreement::meet_within(Lane& lane, const Collective& collective) {
  const LaneCaller caller(*job_, lane);
  job_->mesh().meet({.announcement = {.group = lane.barrier_id, .what = signature_bytes(lane, collective)},
                     .members = lane.members,
                     .home = identity_.id,
                     .deadline = deadline_after(collective.timeout),
                     .caller = &caller,
                     .keeps_group = false,
                     .fails_job = false});
}

// Each member has all numbers, and so all come to the same conclusion.
void Agreement::compare_sizes(Lane& lane, const Collective& collective, const Numbers& own) {
  Traffic traffic(lane.members.size());
  traffic.put(identity_.rank, as_payload(own));
  reach(lane, collective, as_payload(own),
        [&](int member, std::string_view bytes) { traffic.put(member, bytes); });
  const auto difference = traffic.difference();
  if (!difference) return;
  const auto [giver, receiver] = *difference;
  const auto from = lane.members[giver], to = lane.members[receiver];
  job_->mesh().disagree(
      {std::min(from, to), std::max(from, to)},
      "rank " + std::to_string(from) + " gives " + std::to_string(traffic.given(giver, receiver)) +
          " bytes to rank " + std::to_string(to) + ", which expects " +
          std::to_string(traffic.expected(receiver, giver)),
      describe(signature_of(collective, lane.members)) + " seq " + std::to_string(lane.sequence));
}

void Agreement::explain(const Lane& lane, const std::string& place) {
  job_->mesh().explain(lane.members, place, kExplanationPatience);
}

void StoreBarrier::wait(std::chrono::milliseconds timeout) {
  ++round_;
  store_.add(barrier_key(identity_.rank), 1);
  std::vector<int> missing(static_cast<std::size_t>(identity_.size()));
  std::iota(missing.begin(), missing.end(), 0);
  const auto have_come = [&] {
    std::erase_if(missing, [this](int member) { return has_come(member); });
    return missing.empty();
  };
  if (!poll_until(std::chrono::steady_clock::now() + timeout, have_come)) report(missing, timeout);
}

bool StoreBarrier::has_come(int member) {
  return member == identity_.rank || store_.add(barrier_key(member), 0) >= round_;
}

void StoreBarrier::report(const std::vector<int>& missing, std::chrono::milliseconds timeout) const {
  std::vector<int> ranks;
  for (const int member : missing) ranks.push_back(identity_.global_rank(member));
  throw Timeout("comm",
                {.what = rendezvous::ranks_text(ranks) + " did not come to monitored_barrier within " +
                         std::to_string(timeout.count()) + " ms",
                 .where = "rank " + std::to_string(identity_.global_rank()),
                 .hint = "look at the missing ranks' output"},
                ranks);
}

}  // namespace lockstep::detail
