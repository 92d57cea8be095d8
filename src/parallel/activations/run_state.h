// What operators depend on besides their arguments: random numbers and autocast.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace lockstep::detail {

/// A copy of a generator's state, by default of the CPU's. Undefined if it cannot be copied.
at::Tensor generator_state(const at::Generator& generator = {});
void set_generator_state(const at::Tensor& state, const at::Generator& generator = {});

/// This thread's autocast on the CPU.
struct AutocastState {
  bool is_enabled = false;
  bool is_cache_enabled = false;
  at::ScalarType dtype = at::kBFloat16;

  static AutocastState now();
  void set() const;
};

/// Puts the generator and autocast back in the end. Meanwhile casts are not cached: autocast would hand them
/// to the next step, when the weights are others.
class ScopedRunState {
 public:
  ScopedRunState();
  ~ScopedRunState();
  ScopedRunState(const ScopedRunState&) = delete;
  ScopedRunState& operator=(const ScopedRunState&) = delete;

  /// Autocast as it was then.
  static void enter(AutocastState then);

 private:
  at::Tensor generator_;
  AutocastState autocast_;
};

}  // namespace lockstep::detail
