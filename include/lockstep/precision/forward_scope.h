// Scopes within which operators compute in other element types.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

namespace lockstep {

/// For as long as it lives, tensors that are made without an element type (torch::zeros({2})) are `dtype`.
/// LibTorch has one such type for the whole process: threads that load data see it too, and should name the
/// types of what they make. Scopes nest, also those of several threads; when the last has gone, the type is
/// what it was before the first.
class LOCKSTEP_API DefaultDtypeScope {
 public:
  explicit DefaultDtypeScope(at::ScalarType dtype);
  ~DefaultDtypeScope();
  DefaultDtypeScope(const DefaultDtypeScope&) = delete;
  DefaultDtypeScope& operator=(const DefaultDtypeScope&) = delete;
};

/// For as long as it lives, operators on this thread compute as a Precision says: open one around the
/// forward pass and the loss, and close it before backward. Scopes nest; leaving one, also by an
/// exception, restores what was before and forgets the parameters that autocast has cast, so that no
/// forward pass sees casts of another one (those made without gradients carry none).
class LOCKSTEP_API ForwardScope {
 public:
  /// Changes nothing.
  ForwardScope() = default;
  /// Casts to `autocast`, bfloat16 or float16, where torch.autocast does, on the kind of device that this
  /// process runs on (device_in_use()).
  explicit ForwardScope(at::ScalarType autocast);
  /// Makes new tensors of `dtype`, without casts: a DefaultDtypeScope.
  static ForwardScope of_new_tensors(at::ScalarType dtype);
  ~ForwardScope();
  ForwardScope(const ForwardScope&) = delete;
  ForwardScope& operator=(const ForwardScope&) = delete;

 private:
  struct Previous {
    c10::DeviceType type;
    bool enabled;
    bool cache_enabled;
    at::ScalarType dtype;
  };
  struct NewTensors {
    at::ScalarType dtype;
  };
  ForwardScope(at::ScalarType autocast, c10::DeviceType type);
  explicit ForwardScope(NewTensors of) : default_dtype_(std::in_place, of.dtype) {}

  std::optional<Previous> previous_;  // none: nothing to restore
  std::optional<DefaultDtypeScope> default_dtype_;
};

}  // namespace lockstep
