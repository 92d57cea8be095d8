#include "comm/group/device_issuer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>

#include <lockstep/base/error.h>

#include "comm/collectives/staged_collective.h"
#include "comm/group/queued_pending.h"
#include "comm/stores.h"
#include "device/step_recording.h"

namespace lockstep::detail {
namespace {

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

}  // namespace

DeviceIssuer::DeviceIssuer(const TransportRow& row, const GroupIdentity& identity,
                           const GroupContext& context, std::shared_ptr<Transport> transport,
                           std::shared_ptr<Lane> collectives, HostExecution host)
    : row_(row),
      identity_(identity),
      job_(context.job),
      store_(context.store),
      transport_(std::move(transport)),
      collectives_(std::move(collectives)),
      host_(std::move(host)),
      link_(std::make_shared<DeviceLink>(
          row.on_devices, identity, context.options.reduction, context.options.timeout,
          [failure = failure_](std::exception_ptr error) { failure->note(std::move(error)); })) {}

bool DeviceIssuer::takes(const Collective& collective) const {
  const auto device = device_of(collective);
  return device && std::ranges::find(row_.devices, device->type()) == row_.devices.end();
}

std::shared_ptr<Pending> DeviceIssuer::start(const Collective& collective) {
  const auto device = *device_of(collective);
  return link_->may_take(collective, device) ? start_by_devices(collective) : start_staged(collective);
}

// The first one meets before it is posted, as ranks have to agree on how devices are connected. All later
// ones are posted at once, and compared meanwhile.
std::shared_ptr<Pending> DeviceIssuer::start_by_devices(Collective collective) {
  const auto check = [failure = failure_, job = job_, name = name_of(collective.kind)] {
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
    collectives_->queue.run([&] { host_.execute(*collectives_, collective); });
  }
  if (!link_->is_connected()) {  // another thread may have found that out meanwhile
    collective.is_by_devices = false;
    return start_staged(collective);
  }
  const auto call = link_->post(collective);
  if (recording != nullptr) recording->before_replay(check);
  std::shared_ptr<QueuedPending> checked;
  if (!is_first && job_)
    checked = std::make_shared<QueuedPending>(
        collectives_, check_beside(described(std::move(collective)), call, recording == nullptr));
  return std::make_shared<DevicePending>(call, std::move(checked), check, recording);
}

std::shared_ptr<ProgressQueue::Task> DeviceIssuer::check_beside(const Collective& collective,
                                                                std::shared_ptr<DeviceCall> call,
                                                                bool is_watched) {
  return collectives_->queue.push([this, collective, done = call->done(), is_watched] {
    try {
      host_.execute(*collectives_, collective);
    } catch (...) {
      failure_->note(std::current_exception());
      link_->abort();
      throw;
    }
    if (is_watched)
      link_->watch(done, {.name = name_of(collective.kind),
                          .sequence = collectives_->sequence,
                          .rank = identity_.global_rank(),
                          .size = identity_.size(),
                          .group = identity_.name});
  });
}

void DeviceIssuer::connect_once(at::Device device) {
  if (!link_->is_settled()) connect(device);
}

void DeviceIssuer::connect(at::Device device) {
  const auto own = row_of_notice(link_->own_notice(device));
  const auto bytes = static_cast<std::int64_t>(own.size());
  const auto input = at::empty({bytes}, at::kByte), output = at::empty({identity_.size() * bytes}, at::kByte);
  std::memcpy(input.mutable_data_ptr(), own.data(), own.size());
  transport_->all_gather(output, input);
  std::vector<DeviceNotice> notices;
  for (int member = 0; member < identity_.size(); ++member)
    notices.push_back(notice_in(static_cast<const char*>(output.const_data_ptr()) + member * bytes));
  link_->settle(
      device, notices, scoped(store_, "devices").impl().store,
      [job = job_] { require_health(job, "connect devices"); },
      [transport = transport_](std::int64_t sent) { transport->count_sent(sent); });
}

std::shared_ptr<Pending> DeviceIssuer::start_staged(const Collective& collective) {
  failure_->rethrow();
  retired_->clear();
  auto staged = std::make_shared<StagedCollective>(collective, *device_of(collective));
  if (auto* const recording = StepRecording::current()) return record_staged(*recording, std::move(staged));
  const auto lane = host_.lane_of(collective);
  return std::make_shared<StagedPending>(lane, push_staged(*lane, staged), std::move(staged));
}

std::shared_ptr<ProgressQueue::Task> DeviceIssuer::push_staged(
    Lane& lane, const std::shared_ptr<StagedCollective>& staged) {
  return lane.queue.push([this, &lane, keeper = std::make_shared<GateKeeper>(staged, retired_)] {
    try {
      keeper->carry_out([&](const Collective& on_host) { host_.execute(lane, on_host); });
    } catch (...) {
      failure_->note(std::current_exception());
      throw;
    }
  });
}

std::shared_ptr<Pending> DeviceIssuer::record_staged(StepRecording& recording,
                                                     std::shared_ptr<StagedCollective> staged) {
  if (!staged->has_gate())
    refuse_in_recording("a collective of a backend for which the host must wait for the device");
  if (recording.has_meetings())
    refuse_in_recording("a collective behind a step of an optimizer whose replicas are compared");
  recording.before_replay([this, alive = std::weak_ptr(retired_)] {
    if (alive.expired()) throw CommError("comm", {.what = "the communicator of a captured step is closed"});
    failure_->rethrow();
    retired_->clear();
  });
  recording.post(
      [this, staged] {
        const auto lane = host_.lane_of(staged->on_host());
        lane->queue.rely_on(*push_staged(*lane, staged));
      },
      [staged] { staged->open_gate(); });
  return std::make_shared<RecordedPending>(recording, std::move(staged));
}

}  // namespace lockstep::detail
