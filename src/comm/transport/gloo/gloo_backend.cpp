// c10d's Gloo: its devices, the store that it meets in, and an end to what it waits for.
#include <sstream>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

#include "comm/errors.h"
#include "comm/event_loop.h"
#include "comm/fork_guard.h"
#include "comm/transport/gloo/gloo_transport.h"
#include "comm/waiting.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace lockstep::detail {
namespace {

using c10d::PrefixStore;
using c10d::ProcessGroupGloo;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

std::vector<std::shared_ptr<gloo::transport::Device>> make_devices(const ConnectOptions& options) {
  std::vector<std::shared_ptr<gloo::transport::Device>> devices;
  std::istringstream interfaces(env::get("GLOO_SOCKET_IFNAME").value_or(""));
  for (std::string name; std::getline(interfaces, name, ',');) {
    devices.push_back(ProcessGroupGloo::createDeviceForInterface(name));
  }
  if (devices.empty()) {
    devices.push_back(options.own_address.empty()
                          ? ProcessGroupGloo::createDefaultDevice()
                          : ProcessGroupGloo::createDeviceForHostname(options.own_address));
  }
  return devices;
}

// The store as Gloo sees it: its waits can be stopped, and what it publishes is known.
class WatchedStore final : public PrefixStore {
 public:
  WatchedStore(const std::string& prefix, c10::intrusive_ptr<c10d::Store> store, std::stop_token stop)
      : PrefixStore(prefix, std::move(store)), stop_(std::move(stop)) {}

  /// All values that were set.
  const std::string& published() const { return published_; }

  using PrefixStore::set;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    published_.append(value.begin(), value.end());
    PrefixStore::set(key, value);
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, getTimeout()); }
  void wait(const std::vector<std::string>& keys, const milliseconds& timeout) override {
    const auto are_set = [&] {
      if (stop_.stop_requested()) throw CommError("comm", {.what = "connecting was given up"});
      return check(keys);
    };
    if (!poll_until(steady_clock::now() + timeout, are_set))
      throw Timeout("comm", {.what = "a rank did not connect in time", .got = "no key " + keys.front()});
  }

 private:
  std::stop_token stop_;
  std::string published_;
};

// The address that peers call is one that Gloo has published.
std::vector<EventLoop> loops_of(const WatchedStore& store) {
  return EventLoop::find(
      [&store](std::string_view address) { return store.published().find(address) != std::string::npos; });
}

// Gloo itself has no abort(): without this one, a rank that has begun a collective that its peers never join
// waits for the whole timeout.
class AbortableGloo final : public ProcessGroupGloo {
 public:
  AbortableGloo(const c10::intrusive_ptr<WatchedStore>& store, const CommOptions& options,
                c10::intrusive_ptr<Options> gloo_options)
      : ProcessGroupGloo(store, options.rank, options.world_size, std::move(gloo_options)),
        loops_(loops_of(*store)),
        guard_([this] {
          for (const auto& loop : loops_) loop.close_copies();
        }) {
    for (const auto& loop : loops_) loop.close_on_exec();
  }

  void abort() override {
    for (const auto& loop : loops_) loop.shut_down();
  }

 private:
  std::vector<EventLoop> loops_;
  ForkGuard guard_;
};

// Told to stop, it does so only while it waits for a key.
c10::intrusive_ptr<c10d::Backend> make_backend(const ConnectOptions& options, const std::string& prefix,
                                               const c10::intrusive_ptr<c10d::Store>& store,
                                               std::stop_token stop) {
  const SigpipeBlock guard;
  auto gloo_options = ProcessGroupGloo::Options::create(options.timeout);
  gloo_options->devices = make_devices(options);
  gloo_options->threads = 1;  // the group issues one collective at a time
  return c10::make_intrusive<AbortableGloo>(c10::make_intrusive<WatchedStore>(prefix, store, std::move(stop)),
                                            options, std::move(gloo_options));
}

// Ranks of PyTorch know no other keys than these.
struct Keys {
  c10::intrusive_ptr<c10d::Store> store;
  std::string prefix;
};

Keys keys_of_group(const ConnectOptions& options, const c10::intrusive_ptr<c10d::Store>& store) {
  if (options.peers != Peers::kPyTorch) return {c10::make_intrusive<PrefixStore>("gloo", store), "cpu"};
  return {c10::make_intrusive<PrefixStore>("0/", c10::make_intrusive<PrefixStore>("default_pg", store)),
          "cpu/"};
}

}  // namespace

std::shared_ptr<Transport> connect_gloo(const ConnectOptions& options, const Store& store,
                                        const FailureCheck& check) {
  using Backend = c10::intrusive_ptr<c10d::Backend>;
  const auto keys = keys_of_group(options, store.impl().store);
  const auto connect = [=](std::stop_token stop) {
    return make_backend(options, keys.prefix, keys.store, std::move(stop));
  };
  return std::make_shared<GlooTransport>(run_until_failure<Backend>(connect, check));
}

}  // namespace lockstep::detail
