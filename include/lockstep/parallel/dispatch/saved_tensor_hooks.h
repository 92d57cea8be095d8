// Hooks that decide how autograd stores the tensors that it saves for backward.
#pragma once

#include <any>
#include <functional>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

namespace lockstep {

/// A pair of functions as in torch.autograd.graph.saved_tensors_hooks.
struct SavedTensorHooks {
  /// Called when an operator of the forward pass saves `tensor` (detached, gradients off); its result is
  /// stored instead of the tensor. It must not change the tensor.
  std::function<std::any(const at::Tensor& tensor)> pack = {};

  /// Called each time that backward needs the tensor: makes one of the same shape, dtype and content.
  /// Runs in the thread of the engine that needs it, so also after the scope and, on an accelerator,
  /// elsewhere.
  std::function<at::Tensor(const std::any& packed)> unpack = {};
};

/// Applies `hooks` to every tensor that autograd saves in this thread while this object lives. Scopes nest,
/// the innermost one alone is applied; the hooks live as long as a graph needs them.
class LOCKSTEP_API ScopedSavedTensorHooks {
 public:
  /// @throws ConfigError as install_autograd_engine(), or if a function is missing
  explicit ScopedSavedTensorHooks(SavedTensorHooks hooks);
  ~ScopedSavedTensorHooks();
  ScopedSavedTensorHooks(const ScopedSavedTensorHooks&) = delete;
  ScopedSavedTensorHooks& operator=(const ScopedSavedTensorHooks&) = delete;
};

}  // namespace lockstep
