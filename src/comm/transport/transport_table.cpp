// The table of transports: what CommOptions::backend may name. A new transport is a folder and a row.
#include <algorithm>
#include <array>
#include <stdexcept>

#include "comm/transport/gloo/gloo_transport.h"
#include "comm/transport/sockets/socket_transport.h"
#include "comm/transport/transport.h"

namespace lockstep::detail {
namespace {

constexpr std::array kCpu{c10::DeviceType::CPU};

constexpr auto kTransports = std::to_array<TransportRow>({
    {.name = "sockets", .devices = kCpu, .connect = &connect_sockets},
    {.name = "gloo", .devices = kCpu, .connect = &connect_gloo},
    {.name = "nccl",
     .hint =
         "NCCL, for tensors of CUDA devices, is not built yet; sockets and gloo are for those of the CPU, "
         "and move those of devices by way of the host's memory"},
});

constexpr const char* kAuto = "auto";

}  // namespace

void Transport::all_reduce(at::Tensor /*tensor*/, ReduceOp /*op*/) {
  throw std::logic_error("this transport has no reductions of its own");
}

void Transport::reduce(at::Tensor /*tensor*/, int /*root*/, ReduceOp /*op*/) {
  throw std::logic_error("this transport has no reductions of its own");
}

const TransportRow* find_transport(std::string_view name) {
  const auto* const row = std::ranges::find(kTransports, name, &TransportRow::name);
  return row == kTransports.end() ? nullptr : row;
}

std::string resolved_backend(const std::string& backend, Peers peers) {
  if (backend != kAuto) return backend;
  return peers == Peers::kPyTorch ? "gloo" : "sockets";
}

std::string transport_names() {
  std::string names = kAuto;
  for (const auto& row : kTransports) {
    if (row.is_built_in()) names += ", " + std::string(row.name);
  }
  return names;
}

}  // namespace lockstep::detail
