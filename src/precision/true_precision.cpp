#include "precision/true_precision.h"

#include <lockstep/torch.h>

namespace lockstep {
namespace {

// In place: optimizers and whoever else holds the tensor see the new one.
void convert(at::Tensor& tensor, at::ScalarType dtype) {
  if (at::isFloatingType(tensor.scalar_type())) tensor.set_data(tensor.detach().to(dtype));
}

}  // namespace

// torch::nn::Module::to() would convert integers too, such as a BatchNorm's count of batches.
void TruePrecision::convert_module(torch::nn::Module& module) const {
  for (auto& parameter : module.parameters()) {
    auto gradient = std::exchange(parameter.mutable_grad(), {});
    convert(parameter, dtype_);
    if (gradient.defined()) parameter.mutable_grad() = gradient.to(dtype_);
  }
  for (auto& buffer : module.buffers()) convert(buffer, dtype_);
}

at::Tensor TruePrecision::convert_input(const at::Tensor& input) const {
  return at::isFloatingType(input.scalar_type()) ? input.to(dtype_) : input;
}

}  // namespace lockstep
