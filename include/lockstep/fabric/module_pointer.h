// The module behind what users hold: a TORCH_MODULE holder or a shared_ptr.
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>

#include <lockstep/torch.h>

namespace lockstep {

namespace detail {

/// What TORCH_MODULE makes.
template <class Model>
concept ModuleHolder = requires(const Model& model) {
  {model.ptr()};
};

/// The shared_ptr in a holder, or `model` itself.
template <class Model>
auto module_pointer(const Model& model) {
  if constexpr (ModuleHolder<Model>) {
    return model.ptr();
  } else {
    return model;
  }
}

}  // namespace detail

/// A model as functions take it: a TORCH_MODULE holder, or a shared_ptr to a torch::nn::Module.
template <class Model>
concept ModelHandle = requires(const Model& model) {
  { detail::module_pointer(model) } -> std::convertible_to<std::shared_ptr<torch::nn::Module>>;
};

}  // namespace lockstep
