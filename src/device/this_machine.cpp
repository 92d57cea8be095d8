#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <lockstep/base/env.h>
#include <lockstep/device/inventory.h>

#include "device/nvml.h"
#include "device/visible_devices.h"

namespace lockstep {
namespace {

class ThisMachine final : public DeviceInventory {
 public:
  int cuda_count() const override {
    return detail::count_visible(env::get("CUDA_VISIBLE_DEVICES"), detail::nvml_uuids());
  }

  bool is_usable_cuda(int index) const override {
    try {
      at::zeros({1}, at::Device(at::kCUDA, static_cast<at::DeviceIndex>(index)));
      return true;
    } catch (const std::exception&) {
      return false;  // occupied, or a LibTorch without CUDA
    }
  }
};

}  // namespace

const DeviceInventory& this_machine() {
  static const ThisMachine machine;
  return machine;
}

}  // namespace lockstep
