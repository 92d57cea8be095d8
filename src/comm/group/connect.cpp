#include "comm/group/connect.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <random>

#include <lockstep/base/error.h>

#include "comm/c10d.h"
#include "comm/c10d_adapter.h"
#include "comm/errors.h"
#include "comm/fork_guard.h"
#include "comm/group/connected_group.h"
#include "comm/group/single_group.h"
#include "comm/join/join_handshake.h"
#include "comm/join/tcp_store.h"
#include "comm/transport/gloo/gloo_connect.h"
#include "comm/unless_hopeless.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace lockstep::detail {
namespace {

using c10d::PrefixStore;
using c10d::ProcessGroup;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto kFarewell = milliseconds(5000);
constexpr auto kAnswerPatience = milliseconds(300);  // for an answer of a rank that may be stopped
constexpr auto kLook = milliseconds(100);            // between two questions whether the job has failed

c10::intrusive_ptr<PrefixStore> scope_of(const CommOptions& options,
                                         const c10::intrusive_ptr<c10d::Store>& store) {
  if (!is_pytorch(options)) return c10::make_intrusive<PrefixStore>("gloo", store);
  return c10::make_intrusive<PrefixStore>("0/", c10::make_intrusive<PrefixStore>("default_pg", store));
}

using Check = std::function<void()>;

// Returns unless the job is known to have failed.
void require_health(const std::shared_ptr<JobMesh>& job, const std::string& where) {
  if (job) job->mesh().explain({}, where, milliseconds(0));
}

// PyTorch's names end with a slash.
c10::intrusive_ptr<c10d::Backend> connect_gloo(const GroupOptions& options,
                                               const c10::intrusive_ptr<c10d::Store>& scope,
                                               const Check& check) {
  const std::string name = is_pytorch(options) ? "cpu/" : "cpu";
  return unless_hopeless<c10::intrusive_ptr<c10d::Backend>>(
      [=](std::stop_token stop) { return make_gloo_backend(options, name, scope, std::move(stop)); }, check);
}

std::shared_ptr<Group> connect_subgroup(GroupOptions options, GroupIdentity identity, const Store& store,
                                        std::shared_ptr<JobMesh> job);

class GlooGroup final : public Group {
 public:
  /// Rank and world_size of `options` are those within the group, whose own `store` is. `check` throws when
  /// the group can no longer come about.
  GlooGroup(const GroupOptions& options, GroupIdentity identity, const Store& store,
            std::shared_ptr<JobMesh> job, const Check& check)
      : Group(std::move(identity)), options_(options), parts_{.store = store, .job = std::move(job)} {
    const auto scope = scope_of(options, store.impl().store);
    const auto transport = std::make_shared<Transport>(connect_gloo(options, scope, check));
    std::unique_ptr<Agreement> agreement;
    if (const auto& own_job = parts_.job) {
      own_job->open_group();
      parts_.abort = own_job->mesh().on_failure([transport] { transport->abort(); });
      agreement = std::make_unique<Agreement>(own_job, this->identity(), options.timeout);
    }
    parts_.backend =
        std::make_shared<OrderedBackend>(transport, this->identity(), store, options, std::move(agreement));
    auto& process_group = parts_.process_group;
    process_group = c10::make_intrusive<ProcessGroup>(scope, options.rank, options.world_size);
    process_group->setDefaultBackend(ProcessGroup::BackendType::CUSTOM);
    process_group->setBackend(c10::DeviceType::CPU, ProcessGroup::BackendType::CUSTOM,
                              c10::make_intrusive<C10dAdapter>(parts_.backend, options.timeout));
    process_group->setGroupName("lockstep" + this->identity().name);
  }

  // In a forked child nothing may be destroyed: the threads to be waited for are not there.
  ~GlooGroup() override { home_.is_this() ? end(false) : static_cast<void>(new Parts(std::move(parts_))); }

  std::string backend() const override { return "gloo"; }
  milliseconds timeout() const override { return options_.timeout; }
  std::uint64_t bytes_sent() const override { return parts_.backend->bytes_sent(); }
  std::string activity() const override { return parts_.backend->activity(); }
  void run(const Collective& collective) override { parts_.backend->run(collective); }
  std::shared_ptr<Pending> start(const Collective& collective) override {
    return parts_.backend->start(collective);
  }
  std::shared_ptr<Group> make_subgroup(std::span<const int> members, int number) override {
    if (is_pytorch(options_))
      throw CommError("comm", {.what = "sub-groups with ranks of PyTorch are not supported"});
    return connect_subgroup(
        options_, identity_of_subgroup(identity(), members, number),
        scoped(parts_.store, "subgroup/" + std::to_string(number) + "/" + std::to_string(members.front())),
        parts_.job);
  }
  const c10::intrusive_ptr<ProcessGroup>& process_group() const { return parts_.process_group; }

  void close() override {
    if (!home_.is_this() || is_closed_.exchange(true)) return;
    try {
      if (!has_failed()) parts_.backend->drain();
      if (!has_failed()) say_farewell();
    } catch (const std::exception&) {
      // A peer or the store is gone: nobody is left to wait for.
    }
    end(true);
  }

 private:
  // Destroyed from the last to the first: the store, which rank 0 may serve, goes last.
  struct Parts {
    Store store;
    std::shared_ptr<JobMesh> job = {};  // null: collectives are not checked
    rendezvous::ControlMesh::Token abort = {};
    std::shared_ptr<OrderedBackend> backend = {};
    c10::intrusive_ptr<ProcessGroup> process_group = {};
  };

  bool has_failed() const {
    if (parts_.backend->has_failed()) return true;
    try {
      require_health(parts_.job, "close");
      return false;
    } catch (const Error&) {
      return true;
    }
  }

  void end(bool in_peace) {
    if (has_ended_.exchange(true)) return;
    parts_.backend->close();
    if (parts_.job) parts_.job->close_group(in_peace && !has_failed());
  }

  // A rank that closed its sockets early would cut off what others still read; and the server of the
  // store leaves last.
  void say_farewell() {
    if (is_pytorch(options_)) return;  // nobody there would answer
    auto& store = parts_.store;
    const std::string all_left = "farewell/all_left";
    const std::string all_gone = "farewell/all_gone";
    const auto patience = std::min(kFarewell, options_.timeout);
    limit_answers(store, patience);
    if (store.add("farewell/left", 1) == options_.world_size) store.set(all_left, "");
    await_farewell(all_left, patience);
    if (store.add("farewell/gone", 1) == options_.world_size) store.set(all_gone, "");
    if (options_.rank == 0) await_farewell(all_gone, patience);
  }

  void await_farewell(const std::string& key, milliseconds patience) {
    const auto deadline = steady_clock::now() + patience;
    while (steady_clock::now() < deadline && !parts_.store.wait(std::span(&key, 1), kLook))
      require_health(parts_.job, "close");
  }

  GroupOptions options_;
  HomeProcess home_;
  Parts parts_;
  std::atomic<bool> is_closed_ = false;
  std::atomic<bool> has_ended_ = false;
};

// Neither Gloo nor the store can tell who is gone or stopped. Rank 0 serves the store.
void explain(const std::shared_ptr<JobMesh>& job, const GroupIdentity& identity) {
  if (!job) return;
  auto asked = identity.global_ranks;
  if (std::ranges::find(asked, 0) == asked.end()) asked.push_back(0);
  job->mesh().explain(asked, "connect", kAnswerPatience);
}

std::shared_ptr<Group> connect(const GroupOptions& options, const GroupIdentity& identity, const Store& store,
                               const std::shared_ptr<JobMesh>& job, const Check& is_alive) {
  const auto check = [&] {
    require_health(job, "connect");
    is_alive();
  };
  try {
    return std::make_shared<GlooGroup>(options, identity, store, job, check);
  } catch (...) {
    explain(job, identity);
    is_alive();
    rethrow_translated({.name = "connect",
                        .rank = identity.global_rank(),
                        .size = identity.size(),
                        .group = identity.name,
                        .hint = listening_text(options, identity.global_rank())});
  }
}

std::shared_ptr<Group> connect_subgroup(GroupOptions options, GroupIdentity identity, const Store& store,
                                        std::shared_ptr<JobMesh> job) {
  if (identity.size() == 1) return single_group(std::move(identity));
  options.rank = identity.rank;
  options.world_size = identity.size();
  return connect(options, identity, store, job, [] {});
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

std::shared_ptr<JobMesh> connect_mesh(const GroupOptions& options, const Store& store, std::uint64_t id,
                                      const Check& is_alive) {
  if (!options.check_collectives) return nullptr;
  return unless_hopeless<std::shared_ptr<JobMesh>>(
      [=](const std::stop_token&) { return std::make_shared<JobMesh>(options, store, id); }, is_alive);
}

}  // namespace

std::shared_ptr<Group> make_gloo_group(const CommOptions& given, const Store& store, const Roll& roll) {
  // PyTorch's ranks know nothing but Gloo.
  if (is_pytorch(given)) {
    return connect(with_own_address(given), identity_of_job(given.rank, given.world_size, 0), store, nullptr,
                   [] {});
  }
  const Check is_alive = [&roll] { require_alive(roll); };
  const auto id = unless_hopeless<std::uint64_t>(
      [=](const std::stop_token&) { return agree_on_id(store, given); }, is_alive);
  const auto options = unless_hopeless<GroupOptions>(
      [=](const std::stop_token&) { return with_own_address(given, store); }, is_alive);
  const auto job = connect_mesh(options, store, id, is_alive);
  return connect(options, identity_of_job(options.rank, options.world_size, id), store, job, is_alive);
}

c10::intrusive_ptr<ProcessGroup> process_group(const Communicator& comm) {
  const auto* group = dynamic_cast<const GlooGroup*>(comm.group().get());
  return group ? group->process_group() : nullptr;
}

}  // namespace lockstep::detail
