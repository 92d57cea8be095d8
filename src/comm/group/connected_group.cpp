#include "comm/group/connected_group.h"

#include <sched.h>

#include <algorithm>
#include <limits>

#include <lockstep/base/error.h>
#include <lockstep/base/rank_status.h>

#include "comm/collectives/measured_collective.h"
#include "comm/errors.h"
#include "comm/group/queued_pending.h"
#include "comm/stores.h"
#include "device/step_recording.h"
#include "rendezvous/addresses.h"

namespace lockstep::detail {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto kClosePatience = milliseconds(5000);
constexpr auto kAnswerPatience = milliseconds(300);  // for an answer of a rank that may be stopped
constexpr int kInlineBeforeSegments = 4;             // groups of fewer small collectives do without
constexpr auto kPollTime = milliseconds(100);        // between two questions whether the job has failed

// While it lives, the lane and the status of this rank (base/rank_status.h) name the collective that runs.
class ActivityScope {
 public:
  ActivityScope(Lane& lane, const char* name) : lane_(lane) {
    lane_.begin(name);
    enter_collective(name);
  }
  ~ActivityScope() {
    lane_.end();
    leave_collective();
  }
  ActivityScope(const ActivityScope&) = delete;
  ActivityScope& operator=(const ActivityScope&) = delete;

 private:
  Lane& lane_;
};

// Whether the group stays usable after the exception being handled: ranks that a monitored barrier missed may
// still come.
bool is_harmless(const Collective& collective) {
  try {
    throw;
  } catch (const Timeout&) {
    return collective.kind == CollectiveKind::kMonitoredBarrier;
  } catch (...) {
    return false;
  }
}

int usable_processors() {
  cpu_set_t usable;
  return ::sched_getaffinity(0, sizeof usable, &usable) == 0 ? CPU_COUNT(&usable)
                                                             : std::numeric_limits<int>::max();
}

bool is_pytorch(const CommOptions& options) { return options.peers == Peers::kPyTorch; }

// Neither the transport nor the store can tell who is gone or stopped. Rank 0 serves the store.
void explain(const std::shared_ptr<JobMesh>& job, const GroupIdentity& identity) {
  if (!job) return;
  auto asked = identity.global_ranks;
  if (std::ranges::find(asked, 0) == asked.end()) asked.push_back(0);
  job->mesh().explain(asked, "connect", kAnswerPatience);
}

// "rank 1 listens at 10.0.0.2 (eth0); if others cannot reach that, ..."
std::string listening_text(const std::string& address, int rank) {
  if (address.empty()) return {};
  const auto interface = rendezvous::interface_with(address);
  return "rank " + std::to_string(rank) + " listens at " + address +
         (interface.empty() ? "" : " (" + interface + ")") +
         "; if others cannot reach that, GLOO_SOCKET_IFNAME names another interface";
}

std::unique_ptr<Agreement> agreement_of(const GroupContext& context, const GroupIdentity& identity) {
  if (!context.job) return nullptr;
  return std::make_unique<Agreement>(context.job, identity, context.options.timeout);
}

// In a forked child nothing may be destroyed: the threads to be waited for are not there.
std::shared_ptr<Group> owned_by_this_process(ConnectedGroup* group) {
  return {group, [home = HomeProcess()](ConnectedGroup* last) {
            if (home.is_this()) delete last;
          }};
}

}  // namespace

std::shared_ptr<Group> connect_group(const GroupContext& context, const GroupIdentity& identity,
                                     const FailureCheck& check) {
  const auto& row = *find_transport(context.options.backend);
  const auto check_all = [&] {
    require_health(context.job, "connect");
    check();
  };
  try {
    auto options = context.options;
    options.group_id = identity.id;
    options.global_ranks = identity.global_ranks;
    auto transport = row.connect(options, context.store, check_all);
    return owned_by_this_process(new ConnectedGroup(row, context, identity, std::move(transport)));
  } catch (...) {
    explain(context.job, identity);
    check();
    rethrow_translated({.name = "connect",
                        .rank = identity.global_rank(),
                        .size = identity.size(),
                        .group = identity.name,
                        .hint = listening_text(context.options.own_address, identity.global_rank())});
  }
}

ConnectedGroup::ConnectedGroup(const TransportRow& row, GroupContext context, const GroupIdentity& identity,
                               std::shared_ptr<Transport> transport)
    : Group(identity, kCollectiveDevices),
      row_(row),
      context_(std::move(context)),
      transport_(std::move(transport)),
      runner_(*transport_, context_.options.reduction, context_.options.peers),
      agreement_(agreement_of(context_, identity)),
      barrier_(context_.store, identity),
      collectives_(std::make_shared<Lane>(identity)),
      messages_(
          identity,
          [this](const auto& lane) {
            if (context_.job) context_.job->add(lane);
          },
          [this](const auto& lane) {
            if (context_.job) context_.job->forget(*lane);
          }),
      on_devices_(
          row, identity, context_, transport_, collectives_,
          {.lane_of = [this](const Collective& collective) { return lane_of(collective); },
           .execute = [this](Lane& lane, const Collective& collective) { execute(lane, collective); }}) {
  if (!context_.job) return;
  context_.job->open_group();
  abort_ = context_.job->mesh().on_failure([transport = transport_, abort_devices = on_devices_.abort()] {
    transport->abort();
    abort_devices();
  });
  context_.job->add(collectives_);
}

ConnectedGroup::~ConnectedGroup() {
  if (is_all_well()) {
    for (const auto& lane : lanes()) lane->queue.finish_relied_on();
  }
  const bool in_peace = is_left_in_peace();
  const bool is_of_all = identity().name.empty();
  if (in_peace && is_of_all)
    close();
  else
    end(in_peace);
}

// A rank that unwinds, or has said that it fails, does not wait for others, who are told of its failure.
bool ConnectedGroup::is_all_well() const {
  return home_.is_this() && std::uncaught_exceptions() == 0 &&
         rank_status().outcome.load() <= RankOutcome::kDone;
}

bool ConnectedGroup::is_left_in_peace() const {
  return is_all_well() &&
         std::ranges::all_of(lanes(), [](const auto& lane) { return lane->queue.is_idle(); });
}

std::shared_ptr<Lane> ConnectedGroup::lane_of(const Collective& collective) {
  return is_message(collective.kind) ? messages_.of(collective) : collectives_;
}

std::vector<std::shared_ptr<Lane>> ConnectedGroup::lanes() const {
  auto lanes = messages_.all();
  lanes.insert(lanes.begin(), collectives_);
  return lanes;
}

void ConnectedGroup::note_caller() {
  if (agreement_) context_.job->note_caller();
}

std::string ConnectedGroup::activity() const {
  for (const auto& lane : lanes()) {
    if (auto text = lane->activity_text(); !text.empty()) return text;
  }
  return "";
}

void ConnectedGroup::run(const Collective& collective) {
  note_caller();
  if (on_devices_.takes(collective)) return on_devices_.start(collective)->wait();
  refuse_in_recording_thread("a collective of tensors on the CPU");
  const auto lane = lane_of(collective);
  lane->queue.run([&] { execute(*lane, collective); });
}

std::shared_ptr<Pending> ConnectedGroup::start(const Collective& collective) {
  note_caller();
  if (on_devices_.takes(collective)) return on_devices_.start(collective);
  refuse_in_recording_thread("a collective of tensors on the CPU");
  const auto lane = lane_of(collective);
  auto body = [this, &at = *lane, collective] { execute(at, collective); };
  return std::make_shared<QueuedPending>(lane, lane->queue.push(std::move(body)));
}

// The one place that every collective and message goes through, in the order of its lane. What comes after
// one that failed is not announced: the others, who may still be carrying that out, would take it for a
// mistake.
void ConnectedGroup::execute(Lane& lane, const Collective& collective) {
  const bool is_collective = &lane == collectives_.get();
  if (is_collective && failure_) std::rethrow_exception(failure_);
  const char* const name = name_of(collective.kind);
  const ActivityScope scope(lane, name);
  const MeasuredCollective measured(collective);
  try {
    const at::NoGradGuard no_grad;
    perform_or_translate(lane, collective);
  } catch (...) {
    if (agreement_ && is_collective && has_collective_failed_) failure_ = std::current_exception();
    throw;
  }
}

void ConnectedGroup::perform_or_translate(Lane& lane, const Collective& collective) try {
  perform(lane, collective);
} catch (...) {
  if (!is_harmless(collective)) has_collective_failed_ = true;
  rethrow(lane, name_of(collective.kind));
}

void ConnectedGroup::perform(Lane& lane, const Collective& collective) {
  if (collective.is_by_devices) {
    if (agreement_) agreement_->reach(lane, collective);
    return on_devices_.connect_once(*device_of(collective));
  }
  if (runner_.is_packed(collective))
    return runner_.run_packed(collective, [&](const Collective& packed) { perform(lane, packed); });
  if (agreement_ && CollectiveRunner::is_inline(collective)) return perform_inline(lane, collective);
  const bool is_monitored = collective.kind == CollectiveKind::kMonitoredBarrier;
  if (agreement_)
    agreement_->reach(lane, collective);
  else if (is_monitored)
    barrier_.wait(collective.timeout);
  if (is_monitored) return;  // to meet was all
  if (!is_message(collective.kind)) open_segments_once();
  if (runner_.uses_segments(collective)) return perform_in_segments(lane, collective);
  runner_.run(collective);
}

void ConnectedGroup::perform_inline(Lane& lane, const Collective& collective) {
  runner_.run_inline(collective, [&](std::string_view bytes, const auto& take) {
    agreement_->reach(lane, collective, bytes, take);
  });
  if (!has_looked_for_segments_ && ++inline_collectives_ == kInlineBeforeSegments) open_segments_once();
}

void ConnectedGroup::perform_in_segments(const Lane& lane, const Collective& collective) {
  runner_.run_in_segments(collective, [&](int member_of_host, Flag& flag, std::uint64_t value) {
    const int member = host_.first + member_of_host;
    agreement_ ? agreement_->await_late(lane, member, flag, value)
               : await_unchecked(lane, member, flag, value);
  });
}

// Without a control mesh only the system knows whether a process is gone.
void ConnectedGroup::await_unchecked(const Lane& lane, int member, Flag& flag, std::uint64_t value) const {
  const auto deadline = steady_clock::now() + bounded(context_.options.timeout);
  while (!sleep_until(flag, value)) {
    if (lane.is_closing) throw CommError("comm", {.what = "the communicator is closed"});
    const auto who = "rank " + std::to_string(identity().global_rank(member));
    if (host_.segments->has_left(member - host_.first))
      throw std::runtime_error("Connection closed by peer: " + who + " is gone");
    if (steady_clock::now() >= deadline) throw std::runtime_error("Timed out waiting for " + who);
  }
}

// On all ranks within the same collective.
void ConnectedGroup::open_segments_once() {
  if (std::exchange(has_looked_for_segments_, true) || is_pytorch(context_.options)) return;
  host_ = open_segments(*transport_);
  if (!host_.segments) return;
  are_processors_taken_ = usable_processors() <= host_.segments->size();
  runner_.use(*host_.segments);
  if (!agreement_) return;
  hosts_ = hosts_of(host_, identity().global_ranks);
  board_ = std::make_unique<SegmentBoard>(*host_.segments, hosts_.here);
  hosts_.board = board_.get();
  if (hosts_.elsewhere.empty())
    agreement_->use(*collectives_, *board_);
  else if (may_announce_by_hosts(hosts_))
    agreement_->use(*collectives_, hosts_);
}

void ConnectedGroup::rethrow(const Lane& lane, const char* name) const {
  const FailedCollective failed{.name = name + lane.partner,
                                .sequence = lane.sequence,
                                .rank = identity().global_rank(),
                                .size = identity().size(),
                                .group = identity().name};
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (...) {
    if (agreement_ && !lane.is_closing)
      agreement_->explain(lane, failed.name + " seq " + std::to_string(failed.sequence));
    rethrow_translated(failed);
  }
}

std::shared_ptr<Group> ConnectedGroup::make_subgroup(std::span<const int> members, int number) {
  if (is_pytorch(context_.options))
    throw CommError("comm", {.what = "sub-groups with ranks of PyTorch are not supported"});
  auto own = identity_of_subgroup(identity(), members, number);
  if (own.size() == 1) return single_group(std::move(own));
  auto context = context_;
  context.options.rank = own.rank;
  context.options.world_size = own.size();
  context.store =
      scoped(context_.store, "subgroup/" + std::to_string(number) + "/" + std::to_string(members.front()));
  return connect_group(context, own, [] {});
}

void ConnectedGroup::close() {
  if (!home_.is_this() || is_closed_.exchange(true)) return;
  try {
    if (!has_failed()) drain();
    if (!has_failed()) {
      if (context_.job) context_.job->say_goodbye(*collectives_);
      close_together();
    }
  } catch (const std::exception&) {
    // A peer or the store is gone: nobody is left to wait for.
  }
  end(true);
}

bool ConnectedGroup::has_failed() const {
  if (has_collective_failed_) return true;
  try {
    require_health(context_.job, "close");
    return false;
  } catch (const Error&) {
    return true;
  }
}

// Returns when all that was issued so far is done.
void ConnectedGroup::drain() {
  for (const auto& lane : lanes()) lane->queue.run([] {});
}

// Fails what is not done, the collective under way included, and all later ones. Returns when no thread is in
// here any more.
void ConnectedGroup::end(bool in_peace) {
  if (has_ended_.exchange(true)) return;
  const auto reason = std::make_exception_ptr(CommError("comm", {.what = "the communicator is closed"}));
  messages_.close(reason);
  const auto all = lanes();
  bool is_busy = false;
  for (const auto& lane : all) {
    lane->is_closing = true;
    is_busy |= lane->queue.close(reason);
  }
  if (is_busy) transport_->abort();
  for (const auto& lane : all) lane->queue.join();
  on_devices_.close(in_peace && !has_failed());
  if (!context_.job) return;
  for (const auto& lane : all) context_.job->leave(*lane);
  context_.job->close_group(in_peace && !has_failed());
}

// A rank that closed its sockets early would cut off what others still read; and the server of the
// store leaves last.
void ConnectedGroup::close_together() {
  const auto& options = context_.options;
  if (is_pytorch(options)) return;  // nobody there would answer
  auto& store = context_.store;
  const std::string all_left = "farewell/all_left";
  const std::string all_gone = "farewell/all_gone";
  const auto patience = std::min(kClosePatience, options.timeout);
  limit_answers(store, patience);
  if (store.add("farewell/left", 1) == options.world_size) store.set(all_left, "");
  await_key(all_left, patience);
  if (store.add("farewell/gone", 1) == options.world_size) store.set(all_gone, "");
  if (options.rank == 0) await_key(all_gone, patience);
}

void ConnectedGroup::await_key(const std::string& key, milliseconds patience) {
  const auto deadline = steady_clock::now() + patience;
  while (steady_clock::now() < deadline && !context_.store.wait(std::span(&key, 1), kPollTime))
    require_health(context_.job, "close");
}

}  // namespace lockstep::detail
