// What clipping multiplies gradients by, left to the step, which reads them anyway: saves a pass that writes
// all of them.
#pragma once

#include <memory>
#include <unordered_map>

#include <lockstep/optim/optimizer.h>

namespace lockstep::detail {

class DeferredClips {
 public:
  /// Follows an optimizer for as long as the result lives, which the optimizer's zero_grad() is to set to 1.
  std::shared_ptr<double> follow(const Optimizer& optimizer);

  /// What the gradients are to be multiplied by wherever they are read, until zero_grad().
  double factor(const Optimizer& optimizer) const;

  /// Multiplies the optimizer's gradients by `factor`: in its steps, if that has the same bits.
  void scale(const Optimizer& optimizer, double factor);

  /// Multiplies the gradients themselves, for whoever adds to them or takes them elsewhere.
  void apply(const Optimizer& optimizer);
  void apply_all();

 private:
  std::shared_ptr<double> find(const Optimizer& optimizer) const;

  std::unordered_map<const Optimizer*, std::weak_ptr<double>> factors_;  // expired with the optimizer
};

}  // namespace lockstep::detail
