#include <lockstep/data/torch_dataset.h>

#include <ATen/ops/stack.h>

#include <lockstep/base/error.h>

namespace lockstep::detail {

std::int64_t known_size(std::optional<std::size_t> size) {
  if (size) return static_cast<std::int64_t>(*size);
  throw DataError("data",
                  {.what = "a torch::data dataset does not tell its size", .hint = "return it from size()"});
}

Example stack(const std::vector<at::Tensor>& data, const std::vector<at::Tensor>& targets) {
  return {.data = at::stack(data), .target = targets.empty() ? at::Tensor() : at::stack(targets)};
}

}  // namespace lockstep::detail
