// The tensors of a batch of any type: what is done to all of them, such as a conversion, goes through here.
#pragma once

#include <concepts>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/data/example.h>
#include <lockstep/state/state_tree.h>

namespace lockstep {

/// The batch with what `change` makes of each of its tensors; an undefined one stays so. For a batch type of
/// your own, put a function of this name beside it: without one, its tensors are left as they are. Vectors,
/// pairs, tuples, variants and optionals of batches need none.
LOCKSTEP_API at::Tensor with_tensors(const at::Tensor& batch, const TensorChange& change);
LOCKSTEP_API Example with_tensors(const Example& batch, const TensorChange& change);

namespace detail {

template <class Batch>
struct BatchTensors {
  static Batch changed(const Batch& batch, const TensorChange& change) {
    if constexpr (requires {
                    { with_tensors(batch, change) } -> std::same_as<Batch>;
                  }) {
      return with_tensors(batch, change);
    } else {
      return batch;
    }
  }
};

template <class Batch>
Batch with_changed_tensors(const Batch& batch, const TensorChange& change) {
  return BatchTensors<Batch>::changed(batch, change);
}

template <class Batch>
struct BatchTensors<std::vector<Batch>> {
  static std::vector<Batch> changed(const std::vector<Batch>& batches, const TensorChange& change) {
    std::vector<Batch> result;
    result.reserve(batches.size());
    for (const auto& batch : batches) result.push_back(with_changed_tensors(batch, change));
    return result;
  }
};

template <class Batch>
struct BatchTensors<std::optional<Batch>> {
  static std::optional<Batch> changed(const std::optional<Batch>& batch, const TensorChange& change) {
    return batch ? std::optional(with_changed_tensors(*batch, change)) : std::nullopt;
  }
};

template <class First, class Second>
struct BatchTensors<std::pair<First, Second>> {
  static std::pair<First, Second> changed(const std::pair<First, Second>& batch, const TensorChange& change) {
    return {with_changed_tensors(batch.first, change), with_changed_tensors(batch.second, change)};
  }
};

template <class... Batches>
struct BatchTensors<std::variant<Batches...>> {
  using Variant = std::variant<Batches...>;
  static Variant changed(const Variant& batch, const TensorChange& change) {
    return std::visit(
        [&]<class Held>(const Held& held) {
          return Variant(std::in_place_type<Held>, with_changed_tensors(held, change));
        },
        batch);
  }
};

template <class... Batches>
struct BatchTensors<std::tuple<Batches...>> {
  static std::tuple<Batches...> changed(const std::tuple<Batches...>& batch, const TensorChange& change) {
    return std::apply(
        [&](const auto&... parts) { return std::tuple<Batches...>{with_changed_tensors(parts, change)...}; },
        batch);
  }
};

}  // namespace detail
}  // namespace lockstep
