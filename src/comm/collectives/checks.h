// What a collective accepts.
#pragma once

#include <span>
#include <string>

#include <c10/core/DeviceType.h>

#include "comm/collectives/collective.h"

namespace lockstep::detail {

/// The rank that calls, and what its group's transport moves.
struct Caller {
  int rank = 0;
  int size = 1;
  std::span<const c10::DeviceType> devices = {};
};

/// Checks arguments and memory of a call.
/// @throws CommError naming collective, tensor and what is wrong with it
void check_collective(const Collective& collective, const Caller& caller);

/// Whether collectives take tensors of this type.
bool is_supported(at::ScalarType dtype);

// The table's column `check`.
void check_all_reduce(const Collective& collective, const Caller& caller);
void check_reduce(const Collective& collective, const Caller& caller);
void check_broadcast(const Collective& collective, const Caller& caller);
void check_all_gather(const Collective& collective, const Caller& caller);
void check_all_gather_list(const Collective& collective, const Caller& caller);
void check_gather(const Collective& collective, const Caller& caller);
void check_scatter(const Collective& collective, const Caller& caller);
void check_reduce_scatter(const Collective& collective, const Caller& caller);
void check_all_to_all(const Collective& collective, const Caller& caller);
void check_all_to_all_list(const Collective& collective, const Caller& caller);
void check_send(const Collective& collective, const Caller& caller);
void check_recv(const Collective& collective, const Caller& caller);

}  // namespace lockstep::detail
