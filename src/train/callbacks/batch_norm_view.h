// BatchNorm layers, whatever their dimension.
#pragma once

#include <optional>

#include <lockstep/torch.h>

namespace lockstep::detail {

/// What callbacks change of a BatchNorm layer: views of its members.
struct BatchNormView {
  torch::nn::BatchNormOptions* options;
  at::Tensor* running_mean;
  at::Tensor* running_var;
  at::Tensor* num_batches_tracked;

  bool keeps_statistics() const { return options->track_running_stats() && running_mean->defined(); }
};

/// Nothing where `module` is another kind of layer.
std::optional<BatchNormView> batch_norm_view(torch::nn::Module& module);

}  // namespace lockstep::detail
