// Precision: in which element types a model computes. Derive your own and hand a shared_ptr to the
// Trainer; names and meaning are those of Lightning's precision plugins.
#pragma once

#include <optional>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

/// For as long as it lives, operators on this thread compute as a Precision says: open one around the
/// forward pass and the loss, and close it before backward. Scopes nest; leaving one, also by an
/// exception, restores what was before and forgets the parameters that autocast has cast, so that no
/// forward pass sees casts of another one (those made without gradients carry none).
class LOCKSTEP_API ForwardScope {
 public:
  /// Changes nothing.
  ForwardScope() = default;
  /// Casts to `autocast` where torch.autocast does, on the CPU.
  explicit ForwardScope(at::ScalarType autocast);
  ~ForwardScope();
  ForwardScope(const ForwardScope&) = delete;
  ForwardScope& operator=(const ForwardScope&) = delete;

 private:
  struct Previous {
    bool enabled;
    bool cache_enabled;
    at::ScalarType dtype;
  };
  std::optional<Previous> previous_;  // none: nothing to restore
};

/// The Trainer calls convert_module once, before the strategy spreads the model, and opens a
/// forward_scope around every step of the module. Nothing here is Collective or blocks.
class LOCKSTEP_API Precision {
 public:
  virtual ~Precision();

  /// The registered name, such as "bf16-mixed".
  virtual std::string_view name() const = 0;

  /// What to keep alive during one forward pass.
  virtual ForwardScope forward_scope() const { return {}; }

  /// Changes the element type of parameters and buffers in place, where the precision wants another.
  virtual void convert_module(torch::nn::Module& /*module*/) const {}

  /// A tensor that goes into the model, in the element type that the model takes. Fabric calls it; a
  /// Trainer's batches have a type of their own and reach the module as the loader made them.
  virtual at::Tensor convert_input(const at::Tensor& input) const { return input; }
};

}  // namespace lockstep
