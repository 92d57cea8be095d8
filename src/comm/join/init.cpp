#include <lockstep/comm/init.h>

#include <memory>
#include <random>

#include <c10/util/Logging.h>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/rank_status.h>

#include "base/sockets.h"
#include "base/system.h"
#include "comm/c10d.h"
#include "comm/group/connected_group.h"
#include "comm/join/join_handshake.h"
#include "comm/join/shared_store.h"
#include "comm/shared_memory/segment.h"
#include "comm/transport/transport.h"
#include "comm/waiting.h"
#include "rendezvous/addresses.h"
#include "rendezvous/descriptors.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto kProtocol = "5";  // changes with what ranks send each other

ErrorParts fault(const char* option, const std::string& expected, const std::string& got) {
  return {.what = option, .expected = expected, .got = got};
}

std::optional<ErrorParts> fault_of_backend(const CommOptions& options) {
  const auto* const row = detail::find_transport(options.backend);
  const auto absence = row ? row->absence() : "";
  if (row && absence.empty()) {
    if (options.peers == Peers::kLockstep || options.backend == "gloo") return std::nullopt;
    auto parts = fault("backend is not one of ranks of PyTorch", "auto or gloo", options.backend);
    parts.hint = "torch.distributed speaks Gloo, and does not know lockstep's own sockets";
    return parts;
  }
  auto parts = fault("backend is not available", detail::transport_names(), options.backend);
  parts.hint = absence;
  return parts;
}

// What is wrong with options that do not depend on where the ranks meet.
std::optional<ErrorParts> fault_of(const CommOptions& options) {
  if (auto parts = fault_of_backend(options)) return parts;
  if (options.world_size < 1)
    return fault("world_size is out of range", ">= 1", std::to_string(options.world_size));
  if (options.rank < 0 || options.rank >= options.world_size)
    return fault("rank is out of range", "0 to " + std::to_string(options.world_size - 1),
                 std::to_string(options.rank));
  if (options.timeout <= milliseconds(0))
    return fault("timeout is out of range", "more than 0 ms",
                 std::to_string(options.timeout.count()) + " ms");
  return detail::fault_in_memory_switch();
}

std::optional<ErrorParts> fault_of_place(const CommOptions& options) {
  if (options.main_port > 0 && options.main_port < 65536) return std::nullopt;
  return fault("main_port is out of range", "1 to 65535", std::to_string(options.main_port));
}

// Throws, and tells ranks that wait for this one why it cannot come.
[[noreturn]] void refuse(const CommOptions& options, ErrorParts parts, std::optional<Store> store) {
  const ConfigError error("comm", parts);
  try {
    if (store && options.peers == Peers::kLockstep) {
      parts.what = "rank " + std::to_string(options.rank) + " (" + detail::own_entry().whereabouts() +
                   ") cannot join: " + parts.what;
      detail::cancel_handshake(*store, parts);
    }
  } catch (const CommError&) {
    // The store is gone, and with it those who would wait.
  }
  throw error;
}

// The store in which the other ranks wait, if they do already.
std::optional<Store> others_store(const CommOptions& options) {
  if (options.peers == Peers::kPyTorch || fault_of_place(options)) return std::nullopt;
  try {
    return detail::shared_store_if_served(options);
  } catch (const CommError&) {
    return std::nullopt;
  }
}

detail::JoinRequest join_request(const CommOptions& options, const Store& store) {
  const auto& file = store.impl().file;
  return {.rank = options.rank,
          .world_size = options.world_size,
          .settings = {{"backend", options.backend},
                       {"number of ranks", std::to_string(options.world_size)},
                       {"checks of collectives", options.check_collectives ? "on" : "off"},
                       {"reduction", options.reduction == Reduction::kOrdered ? "ordered" : "fast"},
                       {"protocol", kProtocol}},
          .is_server = options.rank == 0 && file.empty(),
          .left_over = file.empty() ? "" : "file " + file};
}

CommOptions settled(CommOptions options) {
  options.main_address = without_brackets(options.main_address);
  options.timeout = detail::bounded(options.timeout);
  options.backend = detail::resolved_backend(options.backend, options.peers);
  return options;
}

// LibTorch's store waits for ever where it cannot open one.
void require_descriptors(const CommOptions& options) {
  require_open_files(rendezvous::descriptors_of_group(options.rank, options.world_size),
                     "a group of " + std::to_string(options.world_size) + " ranks");
}

// Rank 0 draws the job's id: no two jobs have the same, and other programs do not know it.
std::uint64_t agree_on_id(Store store, const CommOptions& options) {
  const std::string key = "group_id";
  if (options.rank != 0) return std::stoull(store.get(key, options.timeout));
  std::random_device random;
  const auto id = std::uint64_t{random()} << 32 | random();
  store.set(key, std::to_string(id));
  return id;
}

// The variable is Gloo's, which takes several interfaces; one is enough for us.
std::string first_interface() {
  const auto names = env::get("GLOO_SOCKET_IFNAME").value_or("");
  return names.substr(0, names.find(','));
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "localhost" || address == "::1" || address == "[::1]";
}

std::string seen_key(int rank) { return "main_address/seen_by/" + std::to_string(rank); }
constexpr auto kAgreedKey = "main_address/agreed";

std::string value_of(Store& store, const std::string& key, const CommOptions& options) {
  if (!store.wait(std::span(&key, 1), options.timeout))
    throw Timeout("comm", {.what = "a rank joined, but does not say how it sees the main address",
                           .got = "no key " + key});
  return store.get(key, options.timeout);
}

// The address at which other machines see that of rank 0; `own` where all ranks are on one machine.
std::string seen_from_outside(Store& store, const CommOptions& options, const std::string& own) {
  for (int rank = 1; rank < options.world_size; ++rank) {
    const auto seen = value_of(store, seen_key(rank), options);
    if (!is_loopback(seen)) return seen;
  }
  return own;
}

// A rank that cannot tell has an interface named, or fails in a moment.
std::string seen_main_address(const std::string& main) {
  try {
    return rendezvous::route_to(main).there.text();
  } catch (const CommError&) {
    return "127.0.0.1";
  }
}

// Ranks that meet in a file know no address: this is the address of the machine's name, if it has one.
rendezvous::Address address_of_machine() {
  try {
    const auto own = rendezvous::route_to(detail::host_name()).own;
    if (!own.is_loopback()) return own;
  } catch (const CommError&) {
  }
  return rendezvous::address_for_others();
}

// `options` with the address of the interface that GLOO_SOCKET_IFNAME names, or else of the one that leads to
// the main address: where this rank listens for the others, for tensors and for control. Where the main
// address is a name that stands for the loopback on its own machine, as on a fresh Debian, it is the one at
// which ranks of other machines see that machine. Collective; blocks until all ranks that have to say
// something have said it. Throws CommError where there is none, Timeout.
detail::ConnectOptions with_own_address(const CommOptions& options, Store store) {
  const auto& main = options.main_address;
  const auto interface = first_interface();
  const bool is_named = !main.empty() && !is_loopback(main);
  if (is_named && options.rank != 0) store.set(seen_key(options.rank), seen_main_address(main));
  detail::ConnectOptions own{options};
  if (!interface.empty())
    own.own_address = rendezvous::address_of_interface(interface).text();
  else
    own.own_address = (main.empty() ? address_of_machine() : rendezvous::route_to(main).own).text();
  if (!is_named) return own;
  const bool is_unknown = interface.empty() && is_loopback(own.own_address);
  if (is_unknown && options.rank != 0) own.own_address = value_of(store, kAgreedKey, options);
  if (options.rank == 0) {
    if (is_unknown) own.own_address = seen_from_outside(store, options, own.own_address);
    store.set(kAgreedKey, own.own_address);
  }
  return own;
}

// The same among ranks of PyTorch, who say nothing of it. Python advertises the address of its machine's
// name, and so does Gloo here, unless that is the loopback.
detail::ConnectOptions with_own_address(const CommOptions& options) {
  const auto& main = options.main_address;
  if (!first_interface().empty() || main.empty() || is_loopback(main)) return {options};
  const auto own = rendezvous::route_to(main).own;
  return own.is_loopback() ? detail::ConnectOptions{options} : detail::ConnectOptions{options, own.text()};
}

using Mesh = std::shared_ptr<detail::JobMesh>;

Mesh connect_mesh(const detail::ConnectOptions& options, const Store& store, std::uint64_t id,
                  const detail::FailureCheck& is_alive) {
  if (!options.check_collectives) return nullptr;
  return detail::run_until_failure<Mesh>(
      [=](const std::stop_token&) { return std::make_shared<detail::JobMesh>(options, store, id); },
      is_alive);
}

// Ranks of PyTorch know nothing but Gloo.
std::shared_ptr<detail::Group> connect_with_pytorch(const CommOptions& options, const Store& store) {
  return detail::connect_group({.options = with_own_address(options), .store = store},
                               detail::identity_of_job(options.rank, options.world_size, 0), [] {});
}

// Connects every rank with every other one, after the handshake.
std::shared_ptr<detail::Group> connect(const CommOptions& given, const Store& store,
                                       const detail::JoinedRanks& ranks) {
  const detail::FailureCheck is_alive = [&ranks] { detail::require_alive(ranks); };
  const auto id = detail::run_until_failure<std::uint64_t>(
      [=](const std::stop_token&) { return agree_on_id(store, given); }, is_alive);
  const auto options = detail::run_until_failure<detail::ConnectOptions>(
      [=](const std::stop_token&) { return with_own_address(given, store); }, is_alive);
  const auto job = connect_mesh(options, store, id, is_alive);
  return detail::connect_group({.options = options, .store = store, .job = job},
                               detail::identity_of_job(options.rank, options.world_size, id), is_alive);
}

Communicator join(CommOptions options, Store store, steady_clock::time_point deadline) {
  if (options.peers == Peers::kPyTorch) {
    options.reduction = Reduction::kFast;
    return Communicator(connect_with_pytorch(options, store));
  }
  const auto ranks = detail::join_handshake(store, join_request(options, store), deadline, options.timeout);
  detail::set_users(store, options.rank, ranks);
  return Communicator(connect(options, store, ranks));
}

// c10d prints stack frames of failures that we report by exceptions. The variable brings them back.
void quieten_c10d() {
  c10::initLogging();
  if (!env::get("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = c10::GLOG_ERROR;
}

// Of the group of all ranks of the job; null for others. Ranks of PyTorch keep no note of it.
std::unique_ptr<JoinNote> note_join(const CommOptions& options) {
  const auto ranks = std::to_string(options.world_size);
  const bool joins_all = options.peers == Peers::kLockstep && env::get("WORLD_SIZE").value_or(ranks) == ranks;
  return joins_all ? std::make_unique<JoinNote>() : nullptr;
}

}  // namespace

Communicator init_communicator(const CommOptions& given, Store store) {
  occupy_standard_descriptors();
  const auto options = settled(given);
  if (const auto parts = fault_of(options)) refuse(options, *parts, store);
  if (options.world_size == 1) return Communicator();
  require_descriptors(options);
  quieten_c10d();
  const auto note = note_join(options);
  return join(options, std::move(store), steady_clock::now() + options.timeout);
}

Communicator init_communicator(const CommOptions& given) {
  occupy_standard_descriptors();
  const auto options = settled(given);
  quieten_c10d();
  if (const auto parts = fault_of(options)) refuse(options, *parts, others_store(options));
  if (options.world_size == 1) return Communicator();
  require_descriptors(options);
  if (const auto parts = fault_of_place(options)) throw ConfigError("comm", *parts);
  const auto note = note_join(options);
  const auto deadline = steady_clock::now() + options.timeout;
  const bool is_pytorch = options.peers == Peers::kPyTorch;
  return join(options, is_pytorch ? detail::pytorch_store(options) : detail::shared_store(options), deadline);
}

}  // namespace lockstep
