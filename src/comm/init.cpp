#include <lockstep/comm/init.h>

#include <c10/util/Logging.h>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/rank_status.h>

#include "base/sockets.h"
#include "base/system.h"
#include "comm/backends/gloo.h"
#include "comm/c10d.h"
#include "comm/file_store.h"
#include "comm/peer_memory.h"
#include "comm/roll_call.h"
#include "comm/roll_entry.h"
#include "comm/shared_store.h"
#include "comm/timeouts.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto kProtocol = "4";  // changes with what ranks send each other

ErrorParts fault(const char* option, const std::string& expected, const std::string& got) {
  return {.what = option, .expected = expected, .got = got};
}

// What is wrong with options that do not depend on where the ranks meet.
std::optional<ErrorParts> fault_of(const CommOptions& options) {
  if (options.backend != "gloo") return fault("backend is not available", "gloo", options.backend);
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

// Those who wait for a rank that can never come hear why.
[[noreturn]] void refuse(const CommOptions& options, ErrorParts parts, std::optional<Store> store) {
  const ConfigError error("comm", parts);
  try {
    if (store && options.peers == Peers::kLockstep) {
      parts.what = "rank " + std::to_string(options.rank) + " (" + detail::own_entry().whereabouts() +
                   ") cannot join: " + parts.what;
      detail::call_off(*store, parts);
    }
  } catch (const CommError&) {
    // Nobody to tell.
  }
  throw error;
}

// Where they wait, if they do already.
std::optional<Store> others_store(const CommOptions& options) {
  if (options.peers == Peers::kPyTorch || fault_of_place(options)) return std::nullopt;
  try {
    return detail::shared_store_if_served(options);
  } catch (const CommError&) {
    return std::nullopt;
  }
}

detail::Attendance attendance(const CommOptions& options, const Store& store) {
  const auto& file = store.impl().file;
  return {.rank = options.rank,
          .world_size = options.world_size,
          .settings = {{"backend", "gloo"},
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
  return options;
}

// Measured: what stores, mesh and Gloo take, and a run's own files. Rank 0 serves the others. Where one
// cannot be opened LibTorch's store waits for ever.
void require_descriptors(const CommOptions& options) {
  constexpr int kAlways = 20;
  const int of_peer = options.rank == 0 ? 3 : 2;
  require_open_files(kAlways + std::int64_t{of_peer} * (options.world_size - 1),
                     "a group of " + std::to_string(options.world_size) + " ranks");
}

Communicator join(CommOptions options, Store store, steady_clock::time_point deadline) {
  detail::Roll roll;
  if (options.peers == Peers::kPyTorch) {
    options.reduction = Reduction::kFast;
  } else {
    roll = detail::roll_call(store, attendance(options, store), deadline, options.timeout);
    detail::set_users(store, options.rank, roll);
  }
  return Communicator(detail::make_gloo_group(options, store, roll));
}

// c10d prints stack frames of what we report by exceptions. Whoever wants them sets the variable.
void quieten_c10d() {
  c10::initLogging();
  if (!env::get("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = c10::GLOG_ERROR;
}

// Groups of some of the ranks are no matter of others. Ranks of PyTorch note nothing.
bool joins_all_ranks(const CommOptions& options) {
  const auto ranks = std::to_string(options.world_size);
  return options.peers == Peers::kLockstep && env::get("WORLD_SIZE").value_or(ranks) == ranks;
}

}  // namespace

Communicator init_communicator(const CommOptions& given, Store store) {
  occupy_standard_descriptors();
  const auto options = settled(given);
  if (const auto parts = fault_of(options)) refuse(options, *parts, store);
  if (options.world_size == 1) return Communicator();
  require_descriptors(options);
  quieten_c10d();
  std::optional<JoinNote> note;
  if (joins_all_ranks(options)) note.emplace();
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
  std::optional<JoinNote> note;
  if (joins_all_ranks(options)) note.emplace();
  const auto deadline = steady_clock::now() + options.timeout;
  const bool is_pytorch = options.peers == Peers::kPyTorch;
  return join(options, is_pytorch ? detail::pytorch_store(options) : detail::shared_store(options), deadline);
}

}  // namespace lockstep
