#include "device/own_kernels.h"

#include <array>
#include <atomic>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <c10/core/DeviceGuard.h>

#include <lockstep/device/torch_device.h>

#include "device/cuda_plugin.h"

namespace lockstep::detail {
namespace {

constexpr auto kTypes = static_cast<std::size_t>(c10::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES);
std::array<std::atomic<const CudaKernels*>, kTypes> of_tests{};

using Types = std::pair<CudaType, CudaType>;  // from, to

// Nothing where the kernel does not know the tensors.
std::optional<Types> types_of(const TensorCopy& copy) {
  if (!copy.from.is_contiguous() || !copy.to.is_contiguous() || copy.from.device() != copy.to.device())
    return std::nullopt;
  const auto from = cuda_type(copy.from.scalar_type()), to = cuda_type(copy.to.scalar_type());
  if (!from || !to) return std::nullopt;
  return Types{*from, *to};
}

void launch_copies(const Types& types, const std::vector<CudaCopy>& copies, const at::Tensor& one) {
  const CudaCopies all{.copies = copies.data(),
                       .count = static_cast<int>(copies.size()),
                       .from_type = types.first,
                       .to_type = types.second};
  check_cuda_launch(own_kernels(one.device()).copy_scaled(all, kernel_stream(one)), "copy_scaled");
}

}  // namespace

const CudaKernels& own_kernels(at::Device device) {
  static constexpr CudaKernels kNone{};
  if (device.is_cuda()) return own_cuda_kernels();
  const auto* const kernels = of_tests[static_cast<std::size_t>(device.type())].load();
  return kernels != nullptr ? *kernels : kNone;
}

void set_own_kernels(at::DeviceType type, const CudaKernels* kernels) {
  of_tests[static_cast<std::size_t>(type)] = kernels;
}

void* kernel_stream(const at::Tensor& tensor) { return current_stream(tensor.device()).native_handle(); }

bool copies_at_once(at::Device device) { return own_kernels(device).copy_scaled != nullptr; }

void copy_in(std::span<const TensorCopy> copies) {
  if (copies.empty()) return;
  const auto& one = copies.front().to;
  const c10::DeviceGuard guard(one.device());
  std::map<Types, std::vector<CudaCopy>> by_types;
  for (const auto& copy : copies) {
    const auto types = copies_at_once(one.device()) ? types_of(copy) : std::nullopt;
    if (!types)
      copy.to.copy_(copy.from);
    else if (copy.to.numel() > 0)
      by_types[*types].push_back({copy.from.const_data_ptr(), copy.to.mutable_data_ptr(), copy.to.numel()});
  }
  for (const auto& [types, of_types] : by_types) launch_copies(types, of_types, one);
}

}  // namespace lockstep::detail
