// NCCL, by c10d's ProcessGroupNCCL: between NVIDIA's GPUs, each of which has one rank.
#pragma once

#include "comm/transport/device_transport.h"

namespace lockstep::detail {

/// The one beside Gloo in the table of transports.
const DeviceTransport& nccl_transport();

}  // namespace lockstep::detail
