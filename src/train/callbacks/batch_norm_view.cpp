#include "train/callbacks/batch_norm_view.h"

namespace lockstep::detail {
namespace {

template <class Impl>
std::optional<BatchNormView> view_as(torch::nn::Module& module) {
  auto* const layer = dynamic_cast<Impl*>(&module);
  if (layer == nullptr) return std::nullopt;
  return BatchNormView{.options = &layer->options,
                       .running_mean = &layer->running_mean,
                       .running_var = &layer->running_var,
                       .num_batches_tracked = &layer->num_batches_tracked};
}

}  // namespace

std::optional<BatchNormView> batch_norm_view(torch::nn::Module& module) {
  if (auto layer = view_as<torch::nn::BatchNorm1dImpl>(module)) return layer;
  if (auto layer = view_as<torch::nn::BatchNorm2dImpl>(module)) return layer;
  return view_as<torch::nn::BatchNorm3dImpl>(module);
}

}  // namespace lockstep::detail
