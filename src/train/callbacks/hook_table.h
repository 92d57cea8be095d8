// The hooks by name, for those who call them.
#pragma once

#include <string_view>

#include <lockstep/train/hooks.h>

namespace lockstep::detail {

/// A member function of Hooks, and what it is called.
template <class... Parameters>
struct NamedHook {
  std::string_view name;
  void (Hooks::*function)(Parameters...);
};

namespace hook {

#define LOCKSTEP_HOOK(NAME) \
  inline constexpr NamedHook NAME { #NAME, &Hooks::NAME }
LOCKSTEP_HOOK(setup);
LOCKSTEP_HOOK(teardown);
LOCKSTEP_HOOK(on_fit_start);
LOCKSTEP_HOOK(on_fit_end);
LOCKSTEP_HOOK(on_sanity_check_start);
LOCKSTEP_HOOK(on_sanity_check_end);
LOCKSTEP_HOOK(on_train_start);
LOCKSTEP_HOOK(on_train_end);
LOCKSTEP_HOOK(on_train_epoch_start);
LOCKSTEP_HOOK(on_train_epoch_end);
LOCKSTEP_HOOK(on_train_batch_start);
LOCKSTEP_HOOK(on_train_batch_end);
LOCKSTEP_HOOK(on_before_zero_grad);
LOCKSTEP_HOOK(on_before_backward);
LOCKSTEP_HOOK(on_after_backward);
LOCKSTEP_HOOK(on_before_optimizer_step);
LOCKSTEP_HOOK(on_validation_start);
LOCKSTEP_HOOK(on_validation_end);
LOCKSTEP_HOOK(on_validation_epoch_start);
LOCKSTEP_HOOK(on_validation_epoch_end);
LOCKSTEP_HOOK(on_validation_batch_start);
LOCKSTEP_HOOK(on_validation_batch_end);
LOCKSTEP_HOOK(on_test_start);
LOCKSTEP_HOOK(on_test_end);
LOCKSTEP_HOOK(on_test_epoch_start);
LOCKSTEP_HOOK(on_test_epoch_end);
LOCKSTEP_HOOK(on_test_batch_start);
LOCKSTEP_HOOK(on_test_batch_end);
LOCKSTEP_HOOK(on_predict_start);
LOCKSTEP_HOOK(on_predict_end);
LOCKSTEP_HOOK(on_predict_epoch_start);
LOCKSTEP_HOOK(on_predict_epoch_end);
LOCKSTEP_HOOK(on_predict_batch_start);
LOCKSTEP_HOOK(on_predict_batch_end);
LOCKSTEP_HOOK(on_exception);
#undef LOCKSTEP_HOOK

}  // namespace hook
}  // namespace lockstep::detail
