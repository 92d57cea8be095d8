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

template <class Impl>
std::optional<BatchNormView> batch_norm_view_as(torch::nn::Module& module) {
  auto* const layer = dynamic_cast<Impl*>(&module);
  if (layer == nullptr) return std::nullopt;
  return BatchNormView{.options = &layer->options,
                       .running_mean = &layer->running_mean,
                       .running_var = &layer->running_var,
                       .num_batches_tracked = &layer->num_batches_tracked};
}

/// None where `module` is another kind of layer.
inline std::optional<BatchNormView> batch_norm_view(torch::nn::Module& module) {
  if (auto layer = batch_norm_view_as<torch::nn::BatchNorm1dImpl>(module)) return layer;
  if (auto layer = batch_norm_view_as<torch::nn::BatchNorm2dImpl>(module)) return layer;
  return batch_norm_view_as<torch::nn::BatchNorm3dImpl>(module);
}

}  // namespace lockstep::detail
