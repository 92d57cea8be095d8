// Precision: in which element types a model computes. Derive your own and hand a shared_ptr to the
// Trainer; names and meaning are those of Lightning's precision plugins.
#pragma once

#include <memory>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/precision/forward_scope.h>
#include <lockstep/state/state_tree.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

class GradScaler;
struct GradScalerOptions;

/// Trainer and Fabric call convert_module once, before the strategy spreads the model, hand every batch's
/// tensors to convert_input, open a forward_scope around every step of the module (in Fabric, its user does),
/// and scale losses and gradients by the grad_scaler. Nothing here is Collective or blocks.
class LOCKSTEP_API Precision {
 public:
  virtual ~Precision();

  /// The registered name, such as "bf16-mixed".
  virtual std::string_view name() const = 0;

  /// What to keep alive during one forward pass.
  virtual ForwardScope forward_scope() const { return {}; }

  /// The element type that the forward pass computes in, by which strategies choose what they send. It is
  /// init_dtype() unless the precision is a mixed one.
  virtual at::ScalarType compute_dtype() const { return init_dtype(); }

  /// The element type of parameters that are made within Fabric::init_module().
  virtual at::ScalarType init_dtype() const { return at::kFloat; }

  /// Changes the element type of parameters and buffers in place, where the precision wants another.
  virtual void convert_module(torch::nn::Module& /*module*/) const {}

  /// Whether convert_input may change anything; where not, batches are handed on as they are.
  virtual bool converts_inputs() const { return true; }
  /// A tensor of a batch, in the element type that the model takes.
  virtual at::Tensor convert_input(const at::Tensor& input) const { return input; }

  /// What scales losses and gradients, and leaves out steps on gradients that are not finite; null where
  /// nothing does. Owned by the precision.
  GradScaler* grad_scaler() { return scaler_.get(); }
  /// The scaler of losses; null: there is none.
  const GradScaler* grad_scaler() const { return scaler_.get(); }
  /// Gives it a scaler, or another one; for precisions that need one, and strategies that have rules of their
  /// own. @throws as GradScaler()
  void set_grad_scaler(const GradScalerOptions& options);

  /// What checkpoints call state(): the name of Lightning's class.
  virtual std::string_view state_key() const { return "Precision"; }

  /// What is kept from step to step, equal on all ranks; taken between steps. By default the scaler's.
  virtual StateTree state() const;
  /// Takes it back. @throws CheckpointError
  virtual void load_state(const StateTree& state);

 private:
  std::shared_ptr<GradScaler> scaler_;
};

}  // namespace lockstep
