// The process group that c10d's Reducer wants, made of a Communicator of any kind.
#pragma once

#include "comm/c10d.h"

namespace lockstep::detail {

/// Has the two collectives that a Reducer calls besides its comm hook: broadcast (of the bucket order) and
/// all-reduce (of who uses which parameter). They share the communicator's order and bytes_sent().
c10::intrusive_ptr<c10d::ProcessGroup> make_reducer_group(const Communicator& comm, c10::DeviceType device);

}  // namespace lockstep::detail
