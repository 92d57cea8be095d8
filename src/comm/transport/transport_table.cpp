// The table of transports: what CommOptions::backend may name. A new transport is a folder and a row.
#include <algorithm>
#include <array>

#include "comm/transport/gloo/gloo_transport.h"
#include "comm/transport/transport.h"

namespace lockstep::detail {
namespace {

constexpr std::array kCpu{c10::DeviceType::CPU};

constexpr auto kTransports = std::to_array<TransportRow>({
    {.name = "gloo", .devices = kCpu, .connect = &connect_gloo},
    {.name = "nccl",
     .hint = "NCCL, for tensors of CUDA devices, is not built yet; gloo is for those of the CPU, and moves "
             "those of devices by way of the host's memory"},
});

}  // namespace

const TransportRow* find_transport(std::string_view name) {
  const auto* const row = std::ranges::find(kTransports, name, &TransportRow::name);
  return row == kTransports.end() ? nullptr : row;
}

std::string transport_names() {
  std::string names;
  for (const auto& row : kTransports) {
    if (row.is_built_in()) names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  return names;
}

}  // namespace lockstep::detail
