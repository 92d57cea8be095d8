// The kernels of src/cuda on simulated devices, by tests/cuda/host_cuda: who calls them, with what, and
// whether streams are ordered for them. What they compute on a GPU is for tools/gpu_check.sh to say.
#pragma once

#include <string>
#include <vector>

namespace lockstep::sim {

/// Simulated devices have all of them while it lives. Before there are threads that use them.
class OwnKernels {
 public:
  OwnKernels();
  ~OwnKernels();
  OwnKernels(const OwnKernels&) = delete;
  OwnKernels& operator=(const OwnKernels&) = delete;
};

/// Takes what was launched since the last time, in the order of the host: "quantize 512 to 8 bits",
/// "copy_scaled 3 tensors of 60".
std::vector<std::string> take_own_launches();

}  // namespace lockstep::sim
