// Building models that do not fit: tensors get their memory later, and only as much of it as a rank keeps.
#pragma once

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

/// While it lives, tensors that this thread makes on the CPU have no memory. What initialises them (fills,
/// random numbers, arithmetic on them, conversions) is remembered instead, and done when a tensor is
/// materialized: by the strategy that shards the module, which keeps its shards and lets the rest go, or by
/// whoever uses it before that.
///
///     auto model = [] { const ls::DeferredInit scope; return Net(); }();
///     auto sharded = ls::fully_shard(model.ptr(), comm);
///
/// Values are those of a construction without it, to the bit, and so is the state of random generators at any
/// moment: a random number is drawn when it would have been, into memory for one tensor that is given back at
/// once. Tensors of less than 1024 elements, and all that an operator makes of other tensors, get their
/// memory at once. Tensors may be initialised on after the scope has ended. Operators materialize what they
/// read; code that takes an address (data_ptr, accessor, torch::save) gets an exception that names the
/// tensor's shape. Scopes nest. torchdistx.deferred_init for C++. Not Collective.
class LOCKSTEP_API DeferredInit {
 public:
  /// @throws ConfigError if another library took the dispatch keys that it needs
  DeferredInit();
  ~DeferredInit();
  DeferredInit(const DeferredInit&) = delete;
  DeferredInit& operator=(const DeferredInit&) = delete;

 private:
  bool was_deferring_;
  bool was_included_;
};

/// Whether `tensor` has yet to be materialized.
LOCKSTEP_API bool is_deferred(const at::Tensor& tensor);

/// Gives `tensor`, and every view of it, its memory and values; nothing happens if it has them. Needs memory
/// for the tensor and, at times, for one that its values are made of.
LOCKSTEP_API void materialize(const at::Tensor& tensor);

/// Materializes all parameters and buffers of `module`.
LOCKSTEP_API void materialize_module(const torch::nn::Module& module);

}  // namespace lockstep
