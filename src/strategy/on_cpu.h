// Until there are accelerators: where a module's tensors must be.
#pragma once

namespace torch::nn {
class Module;
}

namespace lockstep::detail {

/// To be called before anything is done to `module`. Not Collective.
/// @throws ConfigError naming `rank` and the parameter or buffer that is on another device than the CPU
void require_on_cpu(const torch::nn::Module& module, int rank);

}  // namespace lockstep::detail
