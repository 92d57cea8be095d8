#include "comm/collectives/dense.h"

namespace lockstep::detail {
namespace {

at::Tensor dense(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.resolve_conj().resolve_neg().contiguous() : tensor;
}

void copy_unless_same(const at::Tensor& tensor, const at::Tensor& twin) {
  if (tensor.defined() && !tensor.is_same(twin)) tensor.copy_(twin);
}

}  // namespace

DenseTwin::DenseTwin(const Collective& collective) : original_(collective), twin_(collective) {
  twin_.output = dense(twin_.output);
  twin_.input = dense(twin_.input);
  for (auto& tensor : twin_.outputs) tensor = dense(tensor);
  for (auto& tensor : twin_.inputs) tensor = dense(tensor);
}

void DenseTwin::copy_back() const {
  copy_unless_same(original_.output, twin_.output);
  for (std::size_t i = 0; i < twin_.outputs.size(); ++i)
    copy_unless_same(original_.outputs[i], twin_.outputs[i]);
}

}  // namespace lockstep::detail
