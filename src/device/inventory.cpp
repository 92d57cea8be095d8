#include <lockstep/device/inventory.h>

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <lockstep/base/error.h>

#include "base/visible_devices.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse(const std::string& what, int expected, int got, const std::string& hint = "") {
  throw ConfigError("device", {.what = what,
                               .expected = "at most " + std::to_string(expected) + ", or -1 for all",
                               .got = std::to_string(got),
                               .hint = hint});
}

}  // namespace

std::vector<int> find_usable_cuda_devices(int count, const DeviceInventory& inventory) {
  if (count == 0) return {};
  const int visible = inventory.cuda_count();
  if (count < -1 || count > visible)
    refuse("find_usable_cuda_devices: there are not so many", visible, count);
  std::vector<int> usable;
  std::string occupied;
  for (int index = 0; index < visible && static_cast<int>(usable.size()) != count; ++index) {
    if (inventory.is_usable_cuda(index))
      usable.push_back(index);
    else
      occupied += (occupied.empty() ? "" : ", ") + std::to_string(index);
  }
  const int found = static_cast<int>(usable.size());
  if (found < count)
    refuse("find_usable_cuda_devices: not so many are usable", found, count, "occupied: " + occupied);
  return usable;
}

namespace {

class ThisMachine final : public DeviceInventory {
 public:
  int cuda_count() const override {
    return detail::count_visible();
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
