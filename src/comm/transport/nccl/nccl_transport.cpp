#include "comm/transport/nccl/nccl_transport.h"

#include <array>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

#include "device/cuda_plugin.h"

namespace lockstep::detail {
namespace {

std::string absence_of_nccl() {
  if (!is_torch_cuda_loaded())
    return "nccl is for tensors of CUDA devices, and this process uses none (accelerator gpu); sockets and "
           "gloo are for those of the CPU, and move those of devices by way of the host's memory";
  if (load_cuda_plugin() != nullptr) return {};
  return "NCCL is used by liblockstep_cuda.so, which is not at " + cuda_plugin_file().string() +
         "; `make cuda` builds it";
}

std::string identity_of_cuda(c10::Device device) {
  std::array<char, 64> text{};
  const int error = load_cuda_plugin()->device_identity(device.index(), text.data(), text.size());
  if (error == 0) return text.data();
  throw CommError("comm", {.what = "CUDA does not tell the UUID of " + device.str(),
                           .got = "error " + std::to_string(error) + " of CUDA's runtime"});
}

// NCCL's own switch, since its version 2.30.
bool may_nccl_share_devices() { return env::get("NCCL_MULTI_RANK_GPU_ENABLE") == "1"; }

c10::intrusive_ptr<c10d::Backend> connect_nccl(const DeviceConnectOptions& options) {
  auto* const backend = load_cuda_plugin()->connect_nccl(options.store.get(), options.rank, options.size,
                                                         options.device.index(), options.timeout);
  return c10::intrusive_ptr<c10d::Backend>::reclaim(backend);
}

constexpr DeviceTransport kNccl{.type = c10::DeviceType::CUDA,
                                .absence = &absence_of_nccl,
                                .identity_of = &identity_of_cuda,
                                .shares_devices = &may_nccl_share_devices,
                                .connect = &connect_nccl};

}  // namespace

const DeviceTransport& nccl_transport() { return kNccl; }

}  // namespace lockstep::detail
