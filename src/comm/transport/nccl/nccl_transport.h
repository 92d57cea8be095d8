// NCCL, by c10d's ProcessGroupNCCL: between NVIDIA's GPUs, each of which has one rank.
#pragma once

#include "comm/transport/device_transport.h"

namespace lockstep::detail {

/// What the row "nccl" of the table of transports has beside our own sockets.
const DeviceTransport& nccl_transport();

}  // namespace lockstep::detail
