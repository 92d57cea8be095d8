// What clipping and a gradient scaler multiply gradients by, left to the step, which reads them anyway: saves
// passes that write all of them.
#pragma once

#include <memory>
#include <unordered_map>

#include <lockstep/optim/optimizer.h>
#include <lockstep/parallel/sharded/sharded_engine.h>

namespace lockstep::detail {

class DeferredScales final : public PendingScales {
 public:
  /// Follows an optimizer for as long as the result lives, which the optimizer's zero_grad() is to set to 1.
  std::shared_ptr<double> follow(const Optimizer& optimizer);

  /// What the gradients are to be multiplied by wherever they are read, until zero_grad().
  double factor(const Optimizer& optimizer) const;

  /// Multiplies the optimizer's gradients by `factor`: in its steps, if that has the same bits.
  void scale(const Optimizer& optimizer, double factor);

  /// The same, if it is sure to be deferred and to round nothing. False: nothing was done.
  bool defer_exact(const Optimizer& optimizer, double factor);

  /// What is deferred becomes a power of two at most, which rounds nothing, so that gradients have the bits
  /// that they would have if each factor were multiplied in its turn.
  void settle(const Optimizer& optimizer);

  /// Multiplies the gradients themselves, for whoever adds to them or takes them elsewhere.
  void apply(const Optimizer& optimizer);
  void apply_all() override;

  double factor_of(const at::Tensor& piece) const override;

 private:
  std::shared_ptr<double> find(const Optimizer& optimizer) const;

  std::unordered_map<const Optimizer*, std::weak_ptr<double>> factors_;  // expired with the optimizer
};

}  // namespace lockstep::detail
