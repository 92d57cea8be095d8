// Watches gradients as they come.
#pragma once

#include <vector>

#include <lockstep/parallel/autograd.h>

#include "parallel/ddp/hook_adapter.h"
#include "parallel/module_states.h"

namespace lockstep::detail {

/// Told of every gradient that a backward accumulates. Refuses, naming the parameter, what a Reducer would
/// take silently or not understand.
class GradientArrivals {
 public:
  /// `trained` require gradients now, and outlive the object.
  GradientArrivals(const std::vector<NamedTensor>& trained, const HookAdapter& hook);
  GradientArrivals(const GradientArrivals&) = delete;
  GradientArrivals& operator=(const GradientArrivals&) = delete;

  /// Around a backward that averages; others are no business of this.
  void begin() { is_open_ = true, has_any_ = false; }
  void end() { is_open_ = false; }

  /// Whether this backward gave a gradient to any parameter.
  bool has_any() const { return has_any_; }

 private:
  void arrived(const NamedTensor& named);

  const HookAdapter& hook_;
  std::vector<ScopedHandle> handles_;
  bool is_open_ = false;
  bool has_any_ = false;
};

}  // namespace lockstep::detail
