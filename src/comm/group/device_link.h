// DeviceLink: whether and how the devices of a group's ranks are connected
// (comm/transport/device_transport.h).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include "comm/collectives/device_collectives.h"
#include "comm/errors.h"
#include "comm/group/group.h"
#include "comm/transport/device_transport.h"
#include "comm/waiting.h"

namespace lockstep::detail {

/// Waits for calls of devices that take too long. Its thread begins with the first call.
class DeviceWatch {
 public:
  using OnTimeout = std::function<void(std::exception_ptr)>;

  DeviceWatch(std::chrono::milliseconds timeout, OnTimeout on_timeout)
      : timeout_(timeout), on_timeout_(std::move(on_timeout)) {}
  ~DeviceWatch() { end(/*in_peace=*/false); }

  /// What is called is known on all ranks; `done` happens when the device has carried it out.
  void watch(std::shared_ptr<c10::Event> done, FailedCollective call);
  /// Returns when the thread is gone; nothing is watched any more. Blocks `in_peace` until all calls are
  /// done, or one of them has taken too long.
  void end(bool in_peace);

 private:
  struct Watched {
    std::shared_ptr<c10::Event> done;
    FailedCollective call;
    std::chrono::steady_clock::time_point deadline;
  };

  void work();
  std::exception_ptr timeout_of(const Watched& watched) const;

  std::chrono::milliseconds timeout_;
  OnTimeout on_timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Watched> calls_;  // of one stream: they are done in their order
  bool is_ending_ = false;
  std::jthread thread_;
};

/// What ranks tell each other of their devices before they are connected.
struct DeviceNotice {
  std::string place = {};    ///< of the machine and the device; equal where two ranks share one
  std::string absence = {};  ///< why this rank cannot be connected; empty where it can
  bool may_share = false;    ///< whether it may be connected where another rank has its device
};

/// The devices of one group. Calls are from one thread at a time, but for abort().
class DeviceLink {
 public:
  /// `transport` is null where the group's row has none: then tensors of devices are staged.
  DeviceLink(const DeviceTransport* transport, GroupIdentity identity, Reduction reduction,
             std::chrono::milliseconds timeout, DeviceWatch::OnTimeout on_timeout);
  ~DeviceLink();
  DeviceLink(const DeviceLink&) = delete;
  DeviceLink& operator=(const DeviceLink&) = delete;

  /// Whether devices may carry out `collective`, whose tensors are on `device`; the same on all ranks.
  bool may_take(const Collective& collective, c10::Device device) const;

  /// Whether it is known if devices are connected, and whether they are.
  bool is_settled() const { return state_ != State::kUnknown; }
  bool is_connected() const { return state_ == State::kConnected; }

  /// What this rank tells the others, and what follows from what all have told: connected, or staged from now
  /// on, with a warning that says why. Collective, blocking; `store` is the connection's own.
  DeviceNotice own_notice(c10::Device device) const;
  void settle(c10::Device device, const std::vector<DeviceNotice>& notices,
              const c10::intrusive_ptr<c10d::Store>& store, const FailureCheck& check,
              DeviceCollectives::CountSent count_sent);

  /// Posts a call to this rank's device. Returns at once. @throws CommError for another device than that
  std::shared_ptr<DeviceCall> post(const Collective& collective);
  /// A call that is `done` then is known on all ranks: from now on it has the group's timeout to be done.
  void watch(std::shared_ptr<c10::Event> done, FailedCollective name) {
    watch_.watch(std::move(done), std::move(name));
  }

  /// Ends what devices have under way: nothing is of further use. From any thread; does not block.
  void abort();
  /// Nobody calls any more; `in_peace` all is done. Blocks until the connection is gone.
  void close(bool in_peace);

 private:
  enum class State { kUnknown, kStaged, kConnected };

  std::string refusal_in(const std::vector<DeviceNotice>& notices) const;

  const DeviceTransport* transport_;
  GroupIdentity identity_;
  Reduction reduction_;
  std::chrono::milliseconds timeout_;
  std::atomic<State> state_{State::kUnknown};
  c10::Device device_{c10::kCPU};
  std::unique_ptr<DeviceCollectives> collectives_;
  DeviceWatch watch_;
  std::mutex mutex_;  // guards what follows
  c10::intrusive_ptr<c10d::Backend> backend_;
  std::jthread abort_;
  bool is_aborted_ = false;
};

}  // namespace lockstep::detail
