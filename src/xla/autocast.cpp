// Autocast on the device, of which LibTorch knows but the name: its lists of operators, as on GPUs.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace {

#define LOCKSTEP_XLA_LOWER(...) KERNEL(c10::DeviceType::XLA, __VA_ARGS__, lower_precision_fp)
#define LOCKSTEP_XLA_FP32(...) KERNEL(c10::DeviceType::XLA, __VA_ARGS__, fp32)
#define LOCKSTEP_XLA_FP32_DTYPE(...) KERNEL(c10::DeviceType::XLA, __VA_ARGS__, fp32_set_opt_dtype)
#define LOCKSTEP_XLA_PROMOTE(...) KERNEL(c10::DeviceType::XLA, __VA_ARGS__, promote)
#define LOCKSTEP_XLA_OTHER_SIGNATURE(...) \
  KERNEL_DIFFERENT_REDISPATCH_SIGNATURE(c10::DeviceType::XLA, __VA_ARGS__)

TORCH_LIBRARY_IMPL(aten, AutocastXLA, m) {  // the name that LibTorch's macros write to
  using at::IntArrayRef, at::Scalar, at::ScalarType, at::Tensor;
  AT_FORALL_LOWER_PRECISION_FP(LOCKSTEP_XLA_LOWER)
  AT_FORALL_FP32(LOCKSTEP_XLA_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(LOCKSTEP_XLA_FP32_DTYPE)
  AT_FORALL_PROMOTE(LOCKSTEP_XLA_PROMOTE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(LOCKSTEP_XLA_OTHER_SIGNATURE)
}

TORCH_LIBRARY_IMPL(_, AutocastXLA, library) { library.fallback(torch::CppFunction::makeFallthrough()); }

}  // namespace
