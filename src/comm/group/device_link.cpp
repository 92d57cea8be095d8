#include "comm/group/device_link.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include <lockstep/base/error.h>

#include "base/job_log.h"
#include "base/system.h"

namespace lockstep::detail {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto kWatchTime = milliseconds(50);        // between two looks at the device
constexpr auto kEndTime = milliseconds(1);           // the same where the end of a group waits for it
constexpr auto kLaterTimeout = milliseconds(60000);  // by which c10d's own limits are later than ours

std::string staged_text(const std::string& why) {
  return "collectives of devices go through the host's memory: " + why;
}

}  // namespace

void DeviceWatch::watch(std::shared_ptr<c10::Event> done, FailedCollective call) {
  const std::lock_guard lock(mutex_);
  calls_.push_back({std::move(done), std::move(call), steady_clock::now() + bounded(timeout_)});
  if (!thread_.joinable()) thread_ = std::jthread([this] { work(); });
  if (calls_.size() == 1) changed_.notify_all();
}

void DeviceWatch::end(bool in_peace) {
  std::unique_lock lock(mutex_);
  is_ending_ = true;
  if (!in_peace) calls_.clear();
  lock.unlock();
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void DeviceWatch::work() {
  ::pthread_setname_np(::pthread_self(), "ls_devices");
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return is_ending_ || !calls_.empty(); });
    while (!calls_.empty() && calls_.front().done->query()) calls_.pop_front();
    if (is_ending_ && calls_.empty()) return;
    if (!calls_.empty() && steady_clock::now() >= calls_.front().deadline) {
      const auto failure = timeout_of(calls_.front());
      calls_.clear();
      lock.unlock();
      on_timeout_(failure);
      lock.lock();
    }
    changed_.wait_for(lock, is_ending_ ? kEndTime : kWatchTime);
  }
}

std::exception_ptr DeviceWatch::timeout_of(const Watched& watched) const {
  return std::make_exception_ptr(
      Timeout("comm",
              {.what = "all ranks have called it, but the devices have not carried it out within " +
                       std::to_string(timeout_.count()) + " ms",
               .where = place_of(watched.call),
               .hint = "a device hangs, or is busy with something else: nvidia-smi shows with what"},
              {}));
}

DeviceLink::DeviceLink(const DeviceTransport* transport, GroupIdentity identity, Reduction reduction,
                       milliseconds timeout, DeviceWatch::OnTimeout on_timeout)
    : transport_(transport),
      identity_(std::move(identity)),
      reduction_(reduction),
      timeout_(timeout),
      watch_(timeout, [this, on_timeout = std::move(on_timeout)](const std::exception_ptr& failure) {
        on_timeout(failure);
        abort();
      }) {
  if (transport_ == nullptr) state_ = State::kStaged;
}

DeviceLink::~DeviceLink() { close(false); }

bool DeviceLink::may_take(const Collective& collective, c10::Device device) const {
  return state_ != State::kStaged && device.type() == transport_->type &&
         row_of(collective.kind).run_on_devices != nullptr;
}

DeviceNotice DeviceLink::own_notice(c10::Device device) const {
  auto absence = transport_->absence();
  if (!absence.empty()) return {.absence = std::move(absence)};
  return {.place = host_name() + " " + transport_->identity_of(device),
          .may_share = transport_->shares_devices()};
}

// The same on all ranks, which have the same notices.
std::string DeviceLink::refusal_in(const std::vector<DeviceNotice>& notices) const {
  const auto rank = [&](auto each) {
    return "rank " + std::to_string(identity_.global_rank(static_cast<int>(each - notices.begin())));
  };
  const auto absent = std::ranges::find_if(notices, [](const auto& each) { return !each.absence.empty(); });
  if (absent != notices.end()) return rank(absent) + ": " + absent->absence;
  if (std::ranges::all_of(notices, &DeviceNotice::may_share)) return {};
  for (auto one = notices.begin(); one != notices.end(); ++one) {
    const auto other = std::ranges::find(notices.begin(), one, one->place, &DeviceNotice::place);
    if (other != one) return rank(other) + " and " + rank(one) + " share a device";
  }
  return {};
}

void DeviceLink::settle(c10::Device device, const std::vector<DeviceNotice>& notices,
                        const c10::intrusive_ptr<c10d::Store>& store, const FailureCheck& check,
                        DeviceCollectives::CountSent count_sent) {
  if (const auto refusal = refusal_in(notices); !refusal.empty()) {
    warn_once_of_job("devices are not connected", staged_text(refusal));
    state_ = State::kStaged;
    return;
  }
  const DeviceConnectOptions options{.store = store,
                                     .rank = identity_.rank,
                                     .size = identity_.size(),
                                     .device = device,
                                     .timeout = bounded(timeout_) + kLaterTimeout};
  using Backend = c10::intrusive_ptr<c10d::Backend>;
  auto backend = run_until_failure<Backend>(
      [options, connect = transport_->connect](const std::stop_token&) { return connect(options); }, check);
  device_ = device;
  collectives_ = std::make_unique<DeviceCollectives>(backend, reduction_, device, std::move(count_sent));
  const std::lock_guard lock(mutex_);
  backend_ = std::move(backend);
  state_ = State::kConnected;
}

std::shared_ptr<DeviceCall> DeviceLink::post(const Collective& collective) {
  const auto device = operand_of(collective).defined() ? operand_of(collective).device() : device_;
  if (device == device_) return collectives_->post(collective);
  throw CommError("comm",
                  {.what = std::string(name_of(collective.kind)) + ": tensor is on another device than "
                                                                   "the first collective of this group was",
                   .expected = device_.str(),
                   .got = device.str()});
}

// The end of a connection may wait for the device.
void DeviceLink::abort() {
  const std::lock_guard lock(mutex_);
  if (!backend_ || std::exchange(is_aborted_, true)) return;
  abort_ = std::jthread([backend = backend_] {
    try {
      backend->abort();
    } catch (const std::exception&) {
      // It is of no further use in any case.
    }
  });
}

void DeviceLink::close(bool in_peace) {
  watch_.end(in_peace);
  if (!in_peace) abort();
  std::unique_lock lock(mutex_);
  const auto backend = std::exchange(backend_, nullptr);
  const bool is_aborted = is_aborted_;
  lock.unlock();
  if (abort_.joinable()) abort_.join();
  if (!backend) return;
  try {
    if (!is_aborted) backend->shutdown();
  } catch (const std::exception&) {
    // A peer is gone: nobody is left to wait for.
  }
  collectives_ = nullptr;
  state_ = State::kStaged;
}

}  // namespace lockstep::detail
