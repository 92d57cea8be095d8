// The process group that c10d's Reducer wants. Its collectives are those of the Communicator; nothing of
// c10d's own process groups is used.
#pragma once

#include <functional>

#include <lockstep/comm/communicator.h>

#include "comm/c10d.h"

namespace lockstep::detail {

/// Sums who uses which parameter over ranks. Collective, asynchronous.
using ReduceUsedMap = std::function<c10::intrusive_ptr<c10d::Work>(const at::Tensor& map)>;

/// Has the two collectives that a Reducer calls besides its comm hook: broadcast (of the bucket order) and
/// all-reduce, which it needs for the map of used parameters only.
c10::intrusive_ptr<c10d::ProcessGroup> make_reducer_group(const Communicator& comm, c10::DeviceType device,
                                                          ReduceUsedMap reduce_used_map);

}  // namespace lockstep::detail
