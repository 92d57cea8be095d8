// What PyTorch's users know from torch.autograd and LibTorch lacks: how a backward is run, hooks that run
// when a gradient is ready, several on one parameter, and gradients of a loss that are returned instead of
// accumulated.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

namespace lockstep {

/// What is handed on to at::Tensor::backward.
struct BackwardOptions {
  at::Tensor gradient = {};   ///< of a loss that is not a scalar, in its shape
  bool retain_graph = false;  ///< keeps the graph for another backward
  bool create_graph = false;  ///< builds a graph of the gradients; not where they are averaged
};

/// Gets the parameter whose `.grad()` has just been accumulated; may read, change, replace or reset it.
using PostAccumulateGradHook = std::function<void(const at::Tensor& parameter)>;

namespace detail {
class HookChain;
struct HookEntry;
}  // namespace detail

/// Names one registered hook, to remove it; as torch.utils.hooks.RemovableHandle. Dropping the handle
/// leaves the hook where it is. A cheap value.
class LOCKSTEP_API RemovableHandle {
 public:
  RemovableHandle() = default;

  /// Removes the hook, also from inside a hook; what it captured is destroyed before the next backward.
  /// Nothing happens if it is gone already, or its parameter is. Not during a backward of another thread.
  void remove() noexcept;

 private:
  friend class detail::HookChain;
  RemovableHandle(std::weak_ptr<detail::HookChain> chain, std::weak_ptr<detail::HookEntry> entry);
  std::weak_ptr<detail::HookChain> chain_;
  std::weak_ptr<detail::HookEntry> entry_;
};

/// Removes a hook when it goes out of scope.
class LOCKSTEP_API ScopedHandle {
 public:
  ScopedHandle() = default;
  explicit ScopedHandle(RemovableHandle handle) : handle_(std::move(handle)) {}
  ~ScopedHandle() { handle_.remove(); }
  ScopedHandle(ScopedHandle&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  ScopedHandle& operator=(ScopedHandle&& other) noexcept;

 private:
  RemovableHandle handle_;
};

/// Calls `hook` in every backward that accumulates into `parameter.grad()`, once, right after it did and
/// before backward returns; as torch.Tensor.register_post_accumulate_grad_hook. Several hooks of one
/// parameter run in the order of registration, each on what the one before left. They run in the thread of
/// the engine that accumulates (on the CPU: the one that called backward), stay when the parameter is
/// converted in place (`module->to(dtype)`), and live as long as the parameter does. An exception leaves
/// backward, and hooks after it are not run. Neither autograd_grad() nor a parameter that the loss does not
/// use calls any.
/// @throws ConfigError if `parameter` is undefined, does not require a gradient or is not a leaf
LOCKSTEP_API RemovableHandle register_post_accumulate_grad_hook(const at::Tensor& parameter,
                                                                PostAccumulateGradHook hook);

/// Options of autograd_grad(); names are torch.autograd.grad's.
struct AutogradGradOptions {
  std::optional<bool> retain_graph = {};  ///< keep the graph for another pass; default: create_graph
  bool create_graph = false;              ///< make the gradients differentiable themselves
  bool allow_unused = false;              ///< give an undefined gradient where `loss` does not depend on one
};

/// The gradients of the scalar `loss` with respect to `parameters`, in their order; nothing is accumulated
/// into any `.grad()`. They may be changed in place. As torch.autograd.grad(loss, parameters). Blocking;
/// local.
/// @throws ConfigError naming the parameters that `loss` does not depend on, unless allow_unused
LOCKSTEP_API std::vector<at::Tensor> autograd_grad(const at::Tensor& loss,
                                                   const std::vector<at::Tensor>& parameters,
                                                   const AutogradGradOptions& options = {});

}  // namespace lockstep
