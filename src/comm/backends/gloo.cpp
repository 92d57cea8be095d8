#include "comm/backends/gloo.h"

#include <sstream>

#include <lockstep/base/env.h>

#include "comm/broken_pipes.h"
#include "comm/c10d.h"
#include "comm/descriptors.h"
#include "comm/errors.h"
#include "comm/ordered_backend.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace lockstep::detail {
namespace {

using c10d::PrefixStore;
using c10d::ProcessGroup;
using c10d::ProcessGroupGloo;

constexpr auto kFarewell = std::chrono::seconds(5);

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "localhost" || address == "::1";
}

bool is_pytorch(const CommOptions& options) { return options.peers == Peers::kPyTorch; }

// Python always advertises the address of the host's name.
bool stays_on_host(const CommOptions& options) {
  return !is_pytorch(options) && is_loopback(options.main_address);
}

std::vector<std::shared_ptr<gloo::transport::Device>> make_devices(const CommOptions& options) {
  std::vector<std::shared_ptr<gloo::transport::Device>> devices;
  std::istringstream interfaces(env::get("GLOO_SOCKET_IFNAME").value_or(""));
  for (std::string name; std::getline(interfaces, name, ',');) {
    devices.push_back(ProcessGroupGloo::createDeviceForInterface(name));
  }
  if (devices.empty()) {
    devices.push_back(stays_on_host(options) ? ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                             : ProcessGroupGloo::createDefaultDevice());
  }
  return devices;
}

// Gloo itself cannot be called off: without this, who has begun a collective that its peers never join
// waits for the whole timeout.
class AbortableGloo final : public ProcessGroupGloo {
 public:
  /// `watch` has lived since before the devices of `gloo_options`.
  AbortableGloo(const c10::intrusive_ptr<c10d::Store>& store, const CommOptions& options,
                c10::intrusive_ptr<Options> gloo_options, const DescriptorWatch& watch)
      : ProcessGroupGloo(store, options.rank, options.world_size, std::move(gloo_options)),
        descriptors_(watch.keep_private()) {}

  void abort() override { shut_down(descriptors_); }

 private:
  std::vector<Descriptor> descriptors_;
};

c10::intrusive_ptr<PrefixStore> scope_of(const CommOptions& options,
                                         const c10::intrusive_ptr<c10d::Store>& store) {
  if (!is_pytorch(options)) return c10::make_intrusive<PrefixStore>("gloo", store);
  return c10::make_intrusive<PrefixStore>("0/", c10::make_intrusive<PrefixStore>("default_pg", store));
}

// `scope` keeps the keys of several backends apart; PyTorch's names end with a slash.
c10::intrusive_ptr<c10d::Backend> make_gloo(const CommOptions& options, const std::string& scope,
                                            const c10::intrusive_ptr<c10d::Store>& store) {
  const BrokenPipesAreErrors guard;
  const DescriptorWatch watch;
  auto gloo_options = ProcessGroupGloo::Options::create(options.timeout);
  gloo_options->devices = make_devices(options);
  gloo_options->threads = 1;  // the queue above issues one collective at a time
  return c10::make_intrusive<AbortableGloo>(c10::make_intrusive<PrefixStore>(scope, store), options,
                                            std::move(gloo_options), watch);
}

// Members are destroyed from the last to the first: the store, which rank 0 may serve, goes last.
class GlooGroup final : public Group {
 public:
  GlooGroup(const CommOptions& options, const Store& store)
      : options_(options), store_(store), scope_(scope_of(options, store.impl().store)) {
    backend_ = c10::make_intrusive<OrderedBackend>(
        make_gloo(options, is_pytorch(options) ? "cpu/" : "cpu", scope_), options.reduction);
    process_group_ = c10::make_intrusive<ProcessGroup>(scope_, options.rank, options.world_size);
    process_group_->setDefaultBackend(ProcessGroup::BackendType::CUSTOM);
    process_group_->setBackend(c10::DeviceType::CPU, ProcessGroup::BackendType::CUSTOM, backend_);
    process_group_->setGroupName("lockstep");
  }

  int rank() const override { return options_.rank; }
  int size() const override { return options_.world_size; }
  std::string backend() const override { return "gloo"; }
  std::chrono::milliseconds timeout() const override { return options_.timeout; }
  std::uint64_t bytes_sent() const override { return backend_->bytes_sent(); }
  std::string activity() const override { return backend_->activity(); }
  void run(const Collective& collective) override { backend_->run(collective); }
  std::shared_ptr<Pending> start(const Collective& collective) override {
    return backend_->start(collective);
  }
  const c10::intrusive_ptr<ProcessGroup>& process_group() const { return process_group_; }

  void close() override {
    if (std::exchange(is_closed_, true)) return;
    try {
      if (!backend_->has_failed()) backend_->drain();
      if (!backend_->has_failed()) say_farewell();
    } catch (const std::exception&) {
      // A peer or the store is gone: nobody is left to wait for.
    }
    backend_->close();
  }

 private:
  // A rank that closed its sockets early would cut off what others still read; and the server of the
  // store leaves last.
  void say_farewell() {
    if (is_pytorch(options_)) return;  // nobody there would answer
    const std::string all_left = "farewell/all_left";
    const std::string all_gone = "farewell/all_gone";
    const auto patience = std::min<std::chrono::milliseconds>(kFarewell, options_.timeout);
    if (store_.add("farewell/left", 1) == options_.world_size) store_.set(all_left, "");
    (void)store_.wait(std::span(&all_left, 1), patience);
    if (store_.add("farewell/gone", 1) == options_.world_size) store_.set(all_gone, "");
    if (options_.rank == 0) (void)store_.wait(std::span(&all_gone, 1), patience);
  }

  CommOptions options_;
  Store store_;
  c10::intrusive_ptr<PrefixStore> scope_;
  c10::intrusive_ptr<OrderedBackend> backend_;
  c10::intrusive_ptr<ProcessGroup> process_group_;
  bool is_closed_ = false;
};

}  // namespace

std::shared_ptr<Group> make_gloo_group(const CommOptions& options, const Store& store) {
  try {
    return std::make_shared<GlooGroup>(options, store);
  } catch (...) {
    rethrow_translated({.name = "connect", .sequence = 0, .rank = options.rank, .size = options.world_size});
  }
}

c10::intrusive_ptr<ProcessGroup> process_group(const Communicator& comm) {
  const auto* group = dynamic_cast<const GlooGroup*>(comm.group().get());
  return group ? group->process_group() : nullptr;
}

}  // namespace lockstep::detail
