#include "comm/agreement.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "comm/signature.h"

namespace lockstep::detail {
namespace {

using rendezvous::Meeting;
using Bytes = std::vector<std::int64_t>;

constexpr auto kPatience = std::chrono::milliseconds(300);

class LaneCaller final : public rendezvous::Caller {
 public:
  LaneCaller(const JobMesh& job, const Lane& lane) : job_(job), lane_(lane) {}
  bool is_stuck() const override { return job_.is_stuck_in(lane_); }

 private:
  const JobMesh& job_;
  const Lane& lane_;
};

std::string_view as_payload(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size() * sizeof(std::int64_t)};
}

std::int64_t entry_of(std::string_view payload, int index) {
  std::int64_t value = -1;
  const auto offset = static_cast<std::size_t>(index) * sizeof value;
  if (offset + sizeof value <= payload.size()) std::memcpy(&value, payload.data() + offset, sizeof value);
  return value;
}

}  // namespace

Agreement::Agreement(std::shared_ptr<JobMesh> job, GroupIdentity identity, std::chrono::milliseconds timeout)
    : job_(std::move(job)), identity_(std::move(identity)), timeout_(timeout) {}

void Agreement::reach(const Lane& lane, const Collective& collective) {
  if (collective.kind == CollectiveKind::kMonitoredBarrier)
    return;  // has its own way, and may be tried again
  const LaneCaller caller(*job_, lane);
  const auto given = bytes_given(collective, identity_.rank, identity_.size());
  const Meeting meeting{.announcement = {.group = lane.id,
                                         .sequence = lane.sequence,
                                         .what = std::bit_cast<SignatureBytes>(signature_of(collective))},
                        .members = lane.members,
                        .payload = as_payload(given),
                        .deadline = std::chrono::steady_clock::now() + timeout_,
                        .caller = &caller};
  if (given.empty()) return job_->mesh().meet(meeting);
  const auto expected = bytes_expected(collective, identity_.rank, identity_.size());
  std::vector<int> ranks;
  std::string sides;
  job_->mesh().meet(meeting, [&](int rank, std::string_view payload) {
    const auto member = std::ranges::find(identity_.global_ranks, rank) - identity_.global_ranks.begin();
    const auto wanted = expected[static_cast<std::size_t>(member)];
    const auto got = entry_of(payload, identity_.rank);
    if (got == wanted || !ranks.empty()) return;
    ranks = {rank, identity_.global_rank()};
    sides = "rank " + std::to_string(rank) + " gives " + std::to_string(got) + " bytes to rank " +
            std::to_string(identity_.global_rank()) + ", which expects " + std::to_string(wanted);
  });
  if (!ranks.empty()) job_->mesh().disagree(std::move(ranks), sides, name_of(collective.kind));
}

void Agreement::explain(const Lane& lane, const std::string& place) {
  job_->mesh().explain(lane.members, place, kPatience);
}

}  // namespace lockstep::detail
