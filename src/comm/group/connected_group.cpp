#include "comm/group/connected_group.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <limits>

#include <ATen/ops/empty.h>

#include <lockstep/base/error.h>
#include <lockstep/base/rank_status.h>

#include "comm/collectives/measured_collective.h"
#include "comm/errors.h"
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

class QueuedPending final : public Pending {
 public:
  QueuedPending(std::shared_ptr<Lane> lane, std::shared_ptr<ProgressQueue::Task> task)
      : lane_(std::move(lane)), task_(std::move(task)) {}

  void wait() override { lane_->queue.wait(*task_); }
  /// It is carried out in any case, and nobody waits for it now.
  void rely_on() { lane_->queue.rely_on(*task_); }
  bool is_completed() const override { return lane_->queue.is_done(*task_); }

 private:
  std::shared_ptr<Lane> lane_;
  std::shared_ptr<ProgressQueue::Task> task_;
};

// What Work::wait() says of tensors on a device. With a gate nobody waits for the collective itself: that it
// failed is known at the next one, or to wait_host().
class StagedPending final : public Pending {
 public:
  StagedPending(std::shared_ptr<Lane> lane, std::shared_ptr<ProgressQueue::Task> task,
                std::shared_ptr<StagedCollective> staged)
      : carried_(std::move(lane), std::move(task)), staged_(std::move(staged)) {}

  void wait() override {
    if (!staged_->has_gate() || carried_.is_completed()) carried_.wait();
    carried_.rely_on();
    staged_->order_outputs();
    staged_->release_device_tensors();
  }
  void wait_host() override {
    carried_.wait();
    staged_->await_outputs();
    staged_->release_device_tensors();
  }
  bool is_completed() const override { return carried_.is_completed(); }

 private:
  QueuedPending carried_;
  std::shared_ptr<StagedCollective> staged_;
};

// What Work::wait() says of a call that devices carry out themselves. Nobody on the host waits for it: that
// it failed is known at the next one, or to wait_host().
class DevicePending final : public Pending {
 public:
  using Check = std::function<void()>;

  // `checked` compares the call with those of other ranks; null where that is done. `check` throws what the
  // group has failed with. `recording` is the step that the call is part of, if there is one.
  DevicePending(std::shared_ptr<DeviceCall> call, std::shared_ptr<QueuedPending> checked, Check check,
                const StepRecording* recording)
      : call_(std::move(call)),
        checked_(std::move(checked)),
        check_(std::move(check)),
        recording_(recording) {}

  // Of a recording that was given up nothing is to be waited for.
  void wait() override {
    if (recording_ != nullptr && StepRecording::current() != recording_) return;
    check_();
    if (checked_) checked_->rely_on();
    call_->order_outputs();
  }
  // An abort, too, ends the device's part.
  void wait_host() override {
    if (recording_ != nullptr) refuse_in_recording("a wait of the host for a collective");
    if (checked_) checked_->wait();
    call_->await_outputs();
    check_();
  }
  bool is_completed() const override {
    return recording_ == nullptr && (!checked_ || checked_->is_completed()) && call_->is_done();
  }

 private:
  std::shared_ptr<DeviceCall> call_;
  std::shared_ptr<QueuedPending> checked_;
  Check check_;
  const StepRecording* recording_;
};

// What Work::wait() says of a call in a step that is recorded: each replay carries it out, and none is now.
class RecordedPending final : public Pending {
 public:
  RecordedPending(const StepRecording& recording, std::shared_ptr<StagedCollective> staged)
      : recording_(&recording), staged_(std::move(staged)) {}

  // Of a recording that was given up nothing is to be waited for.
  void wait() override {
    if (StepRecording::current() == recording_) staged_->order_outputs();
  }
  void wait_host() override { refuse_in_recording("a wait of the host for a collective"); }
  bool is_completed() const override { return false; }

 private:
  const StepRecording* recording_;
  std::shared_ptr<StagedCollective> staged_;
};

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

// Returns unless the job is known to have failed.
void require_health(const std::shared_ptr<JobMesh>& job, const std::string& where) {
  if (job) job->mesh().explain({}, where, milliseconds(0));
}

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

// What ranks tell each other of their devices, as it travels.
using NoticeRow = std::array<char, 512>;

NoticeRow row_of_notice(const DeviceNotice& notice) {
  NoticeRow row{};
  const auto text = std::string(notice.may_share ? "1" : "0") + notice.place + '\n' + notice.absence;
  std::copy_n(text.begin(), std::min(text.size(), row.size() - 1), row.begin());
  return row;
}

DeviceNotice notice_in(const char* row) {
  const std::string text(row);
  const auto end = text.find('\n');
  return {.place = text.substr(1, end - 1), .absence = text.substr(end + 1), .may_share = text[0] == '1'};
}

// The same call without memory, for who only compares it.
Collective described(Collective collective) {
  const auto describe = [](at::Tensor& tensor) {
    if (tensor.defined()) tensor = at::empty(tensor.sizes(), tensor.options().device(at::kMeta));
  };
  describe(collective.output);
  describe(collective.input);
  std::ranges::for_each(collective.outputs, describe);
  std::ranges::for_each(collective.inputs, describe);
  return collective;
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
      link_(std::make_shared<DeviceLink>(
          row_.on_devices, identity, context_.options.reduction, context_.options.timeout,
          [failure = device_failure_](std::exception_ptr error) { failure->note(std::move(error)); })),
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
          }) {
  if (!context_.job) return;
  context_.job->open_group();
  abort_ = context_.job->mesh().on_failure([transport = transport_, link = link_] {
    transport->abort();
    link->abort();
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

bool ConnectedGroup::is_on_device(const Collective& collective) const {
  const auto device = device_of(collective);
  return device && std::ranges::find(row_.devices, device->type()) == row_.devices.end();
}

std::shared_ptr<Pending> ConnectedGroup::start_on_device(const Collective& collective) {
  const auto device = *device_of(collective);
  return link_->may_take(collective, device) ? start_by_devices(collective) : start_staged(collective);
}

// The first one meets before it is posted, as ranks have to agree on how devices are connected. All later
// ones are posted at once, and compared meanwhile.
std::shared_ptr<Pending> ConnectedGroup::start_by_devices(Collective collective) {
  const auto check = [failure = device_failure_, job = context_.job, name = name_of(collective.kind)] {
    failure->rethrow();
    require_health(job, name);
  };
  check();
  auto* const recording = StepRecording::current();
  collective.is_by_devices = true;
  const std::lock_guard order(posting_);
  const bool is_first = !link_->is_settled();
  if (is_first) {
    if (recording != nullptr) refuse_in_recording("the first collective of a group that is on devices");
    collectives_->queue.run([&] { execute(*collectives_, collective); });
  }
  if (!link_->is_connected()) {  // another thread may have found that out meanwhile
    collective.is_by_devices = false;
    return start_staged(collective);
  }
  const auto call = link_->post(collective);
  if (recording != nullptr) recording->before_replay(check);
  std::shared_ptr<QueuedPending> checked;
  if (!is_first && agreement_)
    checked = std::make_shared<QueuedPending>(
        collectives_, check_beside(described(std::move(collective)), call, recording == nullptr));
  return std::make_shared<DevicePending>(call, std::move(checked), check, recording);
}

std::shared_ptr<ProgressQueue::Task> ConnectedGroup::check_beside(const Collective& collective,
                                                                  std::shared_ptr<DeviceCall> call,
                                                                  bool is_watched) {
  return collectives_->queue.push([this, collective, done = call->done(), is_watched] {
    try {
      execute(*collectives_, collective);
    } catch (...) {
      device_failure_->note(std::current_exception());
      link_->abort();
      throw;
    }
    if (is_watched)
      link_->watch(done, {.name = name_of(collective.kind),
                          .sequence = collectives_->sequence,
                          .rank = identity().global_rank(),
                          .size = identity().size(),
                          .group = identity().name});
  });
}

void ConnectedGroup::meet_for_devices(Lane& lane, const Collective& collective) {
  if (agreement_) agreement_->reach(lane, collective);
  if (!link_->is_settled()) settle_devices(*device_of(collective));
}

void ConnectedGroup::settle_devices(at::Device device) {
  const auto own = row_of_notice(link_->own_notice(device));
  const auto bytes = static_cast<std::int64_t>(own.size());
  const auto input = at::empty({bytes}, at::kByte),
             output = at::empty({identity().size() * bytes}, at::kByte);
  std::memcpy(input.mutable_data_ptr(), own.data(), own.size());
  transport_->all_gather(output, input);
  std::vector<DeviceNotice> notices;
  for (int member = 0; member < identity().size(); ++member)
    notices.push_back(notice_in(static_cast<const char*>(output.const_data_ptr()) + member * bytes));
  link_->settle(
      device, notices, scoped(context_.store, "devices").impl().store,
      [job = context_.job] { require_health(job, "connect devices"); },
      [transport = transport_](std::int64_t sent) { transport->count_sent(sent); });
}

std::shared_ptr<Pending> ConnectedGroup::start_staged(const Collective& collective) {
  device_failure_->rethrow();
  retired_->clear();
  auto staged = std::make_shared<StagedCollective>(collective, *device_of(collective));
  if (auto* const recording = StepRecording::current()) return record_staged(*recording, std::move(staged));
  const auto lane = lane_of(collective);
  return std::make_shared<StagedPending>(lane, push_staged(*lane, staged), std::move(staged));
}

std::shared_ptr<ProgressQueue::Task> ConnectedGroup::push_staged(
    Lane& lane, const std::shared_ptr<StagedCollective>& staged) {
  return lane.queue.push([this, &lane, keeper = std::make_shared<GateKeeper>(staged, retired_)] {
    try {
      keeper->carry_out([&](const Collective& on_host) { execute(lane, on_host); });
    } catch (...) {
      device_failure_->note(std::current_exception());
      throw;
    }
  });
}

std::shared_ptr<Pending> ConnectedGroup::record_staged(StepRecording& recording,
                                                       std::shared_ptr<StagedCollective> staged) {
  if (!staged->has_gate())
    refuse_in_recording("a collective of a backend for which the host must wait for the device");
  if (recording.has_meetings())
    refuse_in_recording("a collective behind a step of an optimizer whose replicas are compared");
  recording.before_replay([this, alive = std::weak_ptr(retired_)] {
    if (alive.expired()) throw CommError("comm", {.what = "the communicator of a captured step is closed"});
    device_failure_->rethrow();
    retired_->clear();
  });
  recording.post(
      [this, staged] {
        const auto lane = lane_of(staged->on_host());
        lane->queue.rely_on(*push_staged(*lane, staged));
      },
      [staged] { staged->open_gate(); });
  return std::make_shared<RecordedPending>(recording, std::move(staged));
}

void ConnectedGroup::run(const Collective& collective) {
  note_caller();
  if (is_on_device(collective)) return start_on_device(collective)->wait();
  refuse_in_recording_thread("a collective of tensors on the CPU");
  const auto lane = lane_of(collective);
  lane->queue.run([&] { execute(*lane, collective); });
}

std::shared_ptr<Pending> ConnectedGroup::start(const Collective& collective) {
  note_caller();
  if (is_on_device(collective)) return start_on_device(collective);
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
  if (collective.is_by_devices) return meet_for_devices(lane, collective);
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
  link_->close(in_peace && !has_failed());
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
