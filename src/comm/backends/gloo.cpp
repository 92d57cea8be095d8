#include "comm/backends/gloo.h"

#include <random>
#include <sstream>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

#include "comm/backends/single.h"
#include "comm/broken_pipes.h"
#include "comm/c10d.h"
#include "comm/c10d_adapter.h"
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

std::shared_ptr<Group> connect_subgroup(CommOptions options, GroupIdentity identity, const Store& store,
                                        std::shared_ptr<JobMesh> job);

// Members are destroyed from the last to the first: the store, which rank 0 may serve, goes last.
class GlooGroup final : public Group {
 public:
  /// Rank and world_size of `options` are those within the group, whose own `store` is.
  GlooGroup(const CommOptions& options, GroupIdentity identity, const Store& store,
            std::shared_ptr<JobMesh> job)
      : Group(std::move(identity)),
        options_(options),
        store_(store),
        scope_(scope_of(options, store.impl().store)),
        job_(std::move(job)) {
    const auto transport =
        std::make_shared<Transport>(make_gloo(options, is_pytorch(options) ? "cpu/" : "cpu", scope_));
    std::unique_ptr<Agreement> agreement;
    if (job_) {
      job_->open_group();
      abort_ = job_->mesh().on_failure([transport] { transport->abort(); });
      agreement = std::make_unique<Agreement>(job_, this->identity(), options.timeout);
    }
    backend_ = std::make_shared<OrderedBackend>(transport, this->identity(), store, options,
                                                std::move(agreement));
    process_group_ = c10::make_intrusive<ProcessGroup>(scope_, options.rank, options.world_size);
    process_group_->setDefaultBackend(ProcessGroup::BackendType::CUSTOM);
    process_group_->setBackend(c10::DeviceType::CPU, ProcessGroup::BackendType::CUSTOM,
                               c10::make_intrusive<C10dAdapter>(backend_, options.timeout));
    process_group_->setGroupName("lockstep" + this->identity().name);
  }

  ~GlooGroup() override { end(false); }

  std::string backend() const override { return "gloo"; }
  std::chrono::milliseconds timeout() const override { return options_.timeout; }
  std::uint64_t bytes_sent() const override { return backend_->bytes_sent(); }
  std::string activity() const override { return backend_->activity(); }
  void run(const Collective& collective) override { backend_->run(collective); }
  std::shared_ptr<Pending> start(const Collective& collective) override {
    return backend_->start(collective);
  }
  std::shared_ptr<Group> make_subgroup(std::span<const int> members, int number) override {
    if (is_pytorch(options_))
      throw CommError("comm", {.what = "sub-groups with ranks of PyTorch are not supported"});
    return connect_subgroup(
        options_, identity_of_subgroup(identity(), members, number),
        scoped(store_, "subgroup/" + std::to_string(number) + "/" + std::to_string(members.front())), job_);
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
    end(true);
  }

 private:
  void end(bool in_peace) {
    if (std::exchange(has_ended_, true)) return;
    backend_->close();
    if (job_) job_->close_group(in_peace && !backend_->has_failed());
  }

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
  std::shared_ptr<JobMesh> job_;  // null: collectives are not checked
  rendezvous::ControlMesh::Token abort_;
  std::shared_ptr<OrderedBackend> backend_;
  c10::intrusive_ptr<ProcessGroup> process_group_;
  bool is_closed_ = false;
  bool has_ended_ = false;
};

std::shared_ptr<Group> connect(const CommOptions& options, const GroupIdentity& identity, const Store& store,
                               std::shared_ptr<JobMesh> job) {
  try {
    return std::make_shared<GlooGroup>(options, identity, store, std::move(job));
  } catch (...) {
    rethrow_translated(
        {.name = "connect", .rank = identity.global_rank(), .size = identity.size(), .group = identity.name});
  }
}

std::shared_ptr<Group> connect_subgroup(CommOptions options, GroupIdentity identity, const Store& store,
                                        std::shared_ptr<JobMesh> job) {
  if (identity.size() == 1) return single_group(std::move(identity));
  options.rank = identity.rank;
  options.world_size = identity.size();
  return connect(options, identity, store, std::move(job));
}

// Rank 0 draws it: no two jobs have the same, and strangers do not know it.
std::uint64_t agree_on_id(Store store, const CommOptions& options) {
  const std::string key = "group_id";
  if (options.rank != 0) return std::stoull(store.get(key, options.timeout));
  std::random_device random;
  const auto id = std::uint64_t{random()} << 32 | random();
  store.set(key, std::to_string(id));
  return id;
}

}  // namespace

std::shared_ptr<Group> make_gloo_group(const CommOptions& options, const Store& store) {
  // PyTorch's ranks know nothing but Gloo.
  if (is_pytorch(options)) {
    return connect(options, identity_of_job(options.rank, options.world_size, 0), store, nullptr);
  }
  const auto id = agree_on_id(store, options);
  auto job = options.check_collectives ? std::make_shared<JobMesh>(options, store, id) : nullptr;
  return connect(options, identity_of_job(options.rank, options.world_size, id), store, std::move(job));
}

c10::intrusive_ptr<ProcessGroup> process_group(const Communicator& comm) {
  const auto* group = dynamic_cast<const GlooGroup*>(comm.group().get());
  return group ? group->process_group() : nullptr;
}

}  // namespace lockstep::detail
