// The table of transports: what CommOptions::backend may name. A new transport is a folder and a row.
#include <algorithm>
#include <array>
#include <deque>
#include <mutex>
#include <stdexcept>

#include "comm/transport/device_transport.h"
#include "comm/transport/gloo/gloo_transport.h"
#include "comm/transport/nccl/nccl_transport.h"
#include "comm/transport/sockets/socket_transport.h"
#include "comm/transport/transport.h"

namespace lockstep::detail {
namespace {

constexpr std::array kCpu{c10::DeviceType::CPU};

struct TransportTable {
  std::mutex mutex = {};
  std::deque<TransportRow> rows = {};  // none is ever taken out, and none moves
};

// Never destroyed: rows are used until the process ends.
TransportTable& transport_table() {
  static auto* const table = new TransportTable{
      .rows = {
          {.name = "sockets", .devices = kCpu, .connect = &connect_sockets},
          {.name = "gloo", .devices = kCpu, .connect = &connect_gloo},
          {.name = "nccl", .devices = kCpu, .connect = &connect_sockets, .on_devices = &nccl_transport()}}};
  return *table;
}

constexpr const char* kAuto = "auto";

}  // namespace

void Transport::all_reduce(at::Tensor /*tensor*/, ReduceOp /*op*/) {
  throw std::logic_error("this transport has no reductions of its own");
}

void Transport::reduce(at::Tensor /*tensor*/, int /*root*/, ReduceOp /*op*/) {
  throw std::logic_error("this transport has no reductions of its own");
}

std::string TransportRow::absence() const { return on_devices == nullptr ? "" : on_devices->absence(); }

const TransportRow* find_transport(std::string_view name) {
  auto& table = transport_table();
  const std::lock_guard lock(table.mutex);
  const auto row = std::ranges::find(table.rows, name, &TransportRow::name);
  return row == table.rows.end() ? nullptr : &*row;
}

void register_transport(const TransportRow& row) {
  auto& table = transport_table();
  const std::lock_guard lock(table.mutex);
  table.rows.push_back(row);
}

std::string resolved_backend(const std::string& backend, Peers peers) {
  if (backend != kAuto) return backend;
  return peers == Peers::kPyTorch ? "gloo" : "sockets";
}

std::string transport_names() {
  auto& table = transport_table();
  const std::lock_guard lock(table.mutex);
  std::string names = kAuto;
  for (const auto& row : table.rows) {
    if (row.absence().empty()) names += ", " + std::string(row.name);
  }
  return names;
}

}  // namespace lockstep::detail
