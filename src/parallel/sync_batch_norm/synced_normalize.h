// What a BatchNorm module computes while it is synchronised, with its gradients.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include <lockstep/comm/communicator.h>

namespace lockstep::detail {

/// The arguments of aten::batch_norm in training. All tensors but `input` may be undefined.
struct BatchNormCall {
  at::Tensor input;  ///< [N, C, ...]
  at::Tensor weight, bias;
  at::Tensor running_mean, running_var;  ///< updated
  double momentum = 0;
  double epsilon = 0;
};

/// Normalises call.input by the mean and variance over the inputs of all ranks of `comm`. Differentiable,
/// once. `layer` names the module in errors. Collective, blocking, and so is its backward.
/// @throws ConfigError if the ranks together have one value per channel
at::Tensor synced_normalize(const BatchNormCall& call, const Communicator& comm, const std::string& layer);

}  // namespace lockstep::detail
