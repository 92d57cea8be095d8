#include "train/callbacks/pruning_mask.h"

#include <cmath>
#include <vector>

#include <lockstep/torch.h>

#include "train/callbacks/refuse.h"

namespace lockstep::detail {
namespace {

constexpr Refusal refuse_mask{"ModelPruning"};

std::int64_t number_to_prune(const Amount& amount, std::int64_t left) {
  if (const auto* share = std::get_if<double>(&amount)) {
    if (!(*share >= 0 && *share <= 1)) refuse_mask("amount", "a fraction in [0, 1]", std::to_string(*share));
    return static_cast<std::int64_t>(std::nearbyint(*share * static_cast<double>(left)));
  }
  const auto number = std::get<std::int64_t>(amount);
  if (number > left)
    refuse_mask("amount", "at most the " + std::to_string(left) + " that are left", std::to_string(number));
  return number;
}

at::Tensor unstructured(const PruningMethod& method, const at::Tensor& weight, const at::Tensor& mask,
                        const Amount& amount) {
  const auto left = mask.flatten().nonzero().squeeze(1);
  const auto number = number_to_prune(amount, left.numel());
  const auto values = weight.flatten().index_select(0, left);
  const auto importance = method.is_random ? torch::rand_like(values) : values.abs();
  const auto least = std::get<1>(torch::topk(importance, number, /*dim=*/-1, /*largest=*/false));
  auto pruned = mask.clone().flatten();
  pruned.index_fill_(0, left.index_select(0, least), 0);
  return pruned.view(mask.sizes());
}

std::vector<std::int64_t> other_dims(const at::Tensor& tensor, std::int64_t dim) {
  std::vector<std::int64_t> dims;
  for (std::int64_t other = 0; other < tensor.dim(); ++other)
    if (other != dim) dims.push_back(other);
  return dims;
}

// Along `dim` of a weight, whose other dimensions are summed up.
at::Tensor importance_of_slices(const PruningMethod& method, const at::Tensor& slices, std::int64_t dim) {
  if (method.is_random) return torch::rand({slices.size(dim)}, slices.options());
  return slices.transpose(0, dim).reshape({slices.size(dim), -1}).norm(method.norm, {1});
}

at::Tensor structured(const PruningMethod& method, const at::Tensor& weight, const at::Tensor& mask,
                      const Amount& amount) {
  const bool has_dim = method.dim < weight.dim() && method.dim >= -weight.dim();
  if (!has_dim || weight.dim() < 2)
    refuse_mask("pruning_dim " + std::to_string(method.dim), "a dimension of a weight of two or more",
                std::to_string(weight.dim()) + " dimensions");
  const auto dim = method.dim < 0 ? method.dim + weight.dim() : method.dim;
  const auto left = mask.sum(other_dims(mask, dim)).nonzero().squeeze(1);
  const auto number = number_to_prune(amount, left.numel());
  const auto importance = importance_of_slices(method, (weight * mask).index_select(dim, left), dim);
  const auto kept = std::get<1>(torch::topk(importance, left.numel() - number));
  const auto lives = torch::zeros({mask.size(dim)}, mask.options());
  lives.index_fill_(0, left.index_select(0, kept), 1);
  std::vector<std::int64_t> shape(static_cast<std::size_t>(mask.dim()), 1);
  shape[static_cast<std::size_t>(dim)] = -1;
  return mask * lives.view(shape);
}

}  // namespace

at::Tensor pruned_mask(const PruningMethod& method, const at::Tensor& weight, const at::Tensor& mask,
                       const Amount& amount) {
  const torch::NoGradGuard no_grad;
  return method.is_structured ? structured(method, weight, mask, amount)
                              : unstructured(method, weight, mask, amount);
}

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
