// NCCL by c10d's ProcessGroupNCCL.
#pragma once

#include <chrono>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace lockstep::detail {

/// CudaPlugin::connect_nccl.
c10d::Backend* connect_nccl(c10d::Store* store, int rank, int size, int device,
                            std::chrono::milliseconds timeout);

}  // namespace lockstep::detail
