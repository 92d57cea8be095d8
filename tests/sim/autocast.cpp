// LibTorch's lists of what autocast computes in the lower type, and what in float32.
#include <ATen/autocast_mode.h>

#include "sim/operators.h"

namespace lockstep::sim {

using namespace at::autocast;  // for the macros of the lists

#define LOCKSTEP_SIM_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define LOCKSTEP_SIM_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define LOCKSTEP_SIM_FP32_RESULT(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define LOCKSTEP_SIM_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

void add_autocast(torch::Library& m) {
  AT_FORALL_LOWER_PRECISION_FP(LOCKSTEP_SIM_LOWER)
  AT_FORALL_FP32(LOCKSTEP_SIM_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(LOCKSTEP_SIM_FP32_RESULT)
  AT_FORALL_PROMOTE(LOCKSTEP_SIM_PROMOTE)
}

}  // namespace lockstep::sim
