#include "state/shared_elements.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep::detail {

// From the smallest step on, each must lead beyond what those before it reach.
bool has_shared_elements(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return false;
  std::vector<std::pair<std::int64_t, std::int64_t>> steps;  // stride and number
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim)
    if (tensor.size(dim) > 1) steps.emplace_back(tensor.stride(dim), tensor.size(dim) - 1);
  std::ranges::sort(steps);
  std::int64_t reached = 0;
  for (const auto& [stride, count] : steps) {
    if (stride <= reached) return true;
    reached += stride * count;
  }
  return false;
}

}  // namespace lockstep::detail
