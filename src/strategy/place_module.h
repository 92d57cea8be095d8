// Where a module's tensors are: on the device of their rank.
#pragma once

#include <c10/core/Device.h>

namespace torch::nn {
class Module;
}

namespace lockstep::detail {

/// To be called before anything is done to `module`. Not Collective.
/// @throws ConfigError naming `rank` and a parameter or buffer that is neither on the CPU nor on `device`,
/// the
///         device of this rank
void require_placeable(const torch::nn::Module& module, c10::Device device, int rank);

/// Moves parameters, their gradients and buffers to `device`, in place: who holds one of them sees it there.
/// Not Collective.
void place_module(torch::nn::Module& module, c10::Device device);
/// The same for what a sharded engine leaves as it is: buffers, and parameters that are no real numbers.
void place_unsharded(torch::nn::Module& module, c10::Device device);

}  // namespace lockstep::detail
