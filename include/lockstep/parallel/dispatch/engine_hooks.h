// Hooks on LibTorch's autograd engine: observers of the begin and end of backward passes, and hooks that
// decide how the tensors that it saves for backward are stored.
#pragma once

#include <any>
#include <functional>
#include <memory>
#include <span>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

namespace torch::autograd {
struct Edge;
}

namespace lockstep {

/// The arguments of a backward pass.
struct BackwardCall {
  std::span<const torch::autograd::Edge> roots;   ///< where it starts: the losses' functions
  std::span<const torch::autograd::Edge> inputs;  ///< what it was restricted to; empty for all leaves
  bool accumulates;                               ///< into .grad(); false for autograd_grad()
};

/// How a backward ended.
enum class BackwardEnd {
  kDone,   ///< all gradients have arrived
  kFailed  ///< an exception is on its way to the caller
};

/// Follows the backward passes of a thread. Calls come from that thread.
class LOCKSTEP_API BackwardObserver {
 public:
  virtual ~BackwardObserver() = default;

  /// An outermost backward is about to run; one that a hook or a checkpoint runs inside of it is part of it.
  /// An exception ends the backward before it has begun.
  virtual void on_backward_begin(const BackwardCall& call) = 0;

  /// It ended. Called once for each on_backward_begin() that returned. After kDone an exception leaves
  /// backward; after kFailed it is logged, since the first one is on its way.
  virtual void on_backward_end(BackwardEnd end) = 0;
};

namespace detail {
struct BackwardThread;
}

/// Lets `observer` follow the backward passes of this thread as long as this object lives; the observer
/// must live as long. Observers begin in the order in which they were added and end in reverse. Destroy it
/// in the same thread, outside of backward.
class LOCKSTEP_API ScopedBackwardObserver {
 public:
  /// @throws ConfigError if backward passes cannot be followed: see install_autograd_engine()
  explicit ScopedBackwardObserver(BackwardObserver& observer);
  ~ScopedBackwardObserver();
  ScopedBackwardObserver(const ScopedBackwardObserver&) = delete;
  ScopedBackwardObserver& operator=(const ScopedBackwardObserver&) = delete;

 private:
  BackwardObserver* observer_;
  std::shared_ptr<detail::BackwardThread> thread_;
};

/// Puts our subclass of LibTorch's autograd engine in place, on which ScopedBackwardObserver and
/// ScopedSavedTensorHooks rest; their constructors call it. Where neither is in use, backward is
/// LibTorch's own. Once per process, thread-safe; later calls only check.
/// @throws ConfigError during a backward, after one that used an accelerator's threads, or where someone
///   else's engine (Python's) is in place
LOCKSTEP_API void install_autograd_engine();

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
