#include "cuda/nccl.h"

#include <cstdlib>
#include <mutex>

#define USE_DISTRIBUTED
#define USE_C10D_NCCL
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace lockstep::detail {
namespace {

// c10d's own threads end the process where a collective takes too long, or they themselves: who is late, lost
// or another opinion is said by our control mesh, as an error. What the user has set stays.
void leave_errors_to_us() {
  static std::once_flag once;
  std::call_once(once, [] {
    ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", /*replace=*/0);
    ::setenv("TORCH_NCCL_ENABLE_MONITORING", "0", /*replace=*/0);
  });
}

}  // namespace

c10d::Backend* connect_nccl(c10d::Store* store, int rank, int size, int device,
                            std::chrono::milliseconds timeout) {
  leave_errors_to_us();
  const auto index = static_cast<c10::DeviceIndex>(device);
  const c10::cuda::CUDAGuard guard(index);
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(
      c10::intrusive_ptr<c10d::Store>::unsafe_reclaim_from_nonowning(store), rank, size, std::move(options));
  backend->eagerConnectSingleDevice(c10::Device(c10::kCUDA, index));
  return backend.release();
}

}  // namespace lockstep::detail
