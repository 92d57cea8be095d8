// Which weights are the least important: torch.nn.utils.prune's methods as functions. Exported for tests.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/torch.h>

namespace lockstep::detail {

/// How weights, or whole slices of them, are chosen.
struct PruningMethod {
  bool is_random = false;
  bool is_structured = false;
  std::int64_t dim = 0;  ///< structured: of the slices
  double norm = 1;       ///< structured, unless random
};

/// A number of weights, or of slices; or a fraction of those that are left.
using Amount = std::variant<std::int64_t, double>;

/// `mask` (1 where a weight is left, of the element type of `weight`) with `amount` more zeros.
/// @throws ConfigError for a number larger than what is left, and for a dim that the weight has not
LOCKSTEP_API at::Tensor pruned_mask(const PruningMethod& method, const at::Tensor& weight,
                                    const at::Tensor& mask, const Amount& amount);

/// New random values for the parameter `name` of `layer`, as its constructor draws them from torch's
/// generator; undefined for layers whose initialization is unknown.
at::Tensor redrawn(const torch::nn::Module& layer, const std::string& name);

}  // namespace lockstep::detail
