#include "parallel/ddp/bucket_layout.h"

namespace lockstep::detail {

std::vector<at::Tensor> gradient_views(const at::Tensor& buffer, const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> views;
  std::int64_t begin = 0;
  for (const auto& parameter : parameters) {
    const auto part = buffer.narrow(0, begin, parameter.numel());
    const bool is_dense = parameter.is_non_overlapping_and_dense();
    views.push_back(is_dense ? part.as_strided(parameter.sizes(), parameter.strides())
                             : part.view(parameter.sizes()));
    begin += parameter.numel();
  }
  return views;
}

}  // namespace lockstep::detail
