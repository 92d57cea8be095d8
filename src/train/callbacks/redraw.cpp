#include "train/callbacks/redraw.h"

namespace lockstep::detail {
namespace {

template <class Impl>
bool reset_as(torch::nn::Module& layer) {
  auto* const known = dynamic_cast<Impl*>(&layer);
  if (known != nullptr) known->reset_parameters();
  return known != nullptr;
}

template <class... Impls>
bool reset_as_any(torch::nn::Module& layer) {
  return (reset_as<Impls>(layer) || ...);
}

}  // namespace

at::Tensor redrawn(const torch::nn::Module& layer, const std::string& name) {
  using namespace torch::nn;
  const auto copy = layer.clone();
  const bool is_drawn =
      reset_as_any<LinearImpl, BilinearImpl, EmbeddingImpl, EmbeddingBagImpl, Conv1dImpl, Conv2dImpl,
                   Conv3dImpl, ConvTranspose1dImpl, ConvTranspose2dImpl, ConvTranspose3dImpl>(*copy);
  return is_drawn ? copy->named_parameters(/*recurse=*/false)[name].detach() : at::Tensor();
}

}  // namespace lockstep::detail
