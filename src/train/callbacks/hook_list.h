// The hooks by name, and the list of objects on which each hook is called: the callbacks, in the order
// that prepare_run.cpp makes, then the module.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/profilers/profiler.h>
#include <lockstep/train/hooks.h>

#include "base/failure_place.h"
#include "train/logging/class_name.h"

namespace lockstep::detail {

/// A member function of Hooks, and its name.
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

class HookList {
 public:
  /// Removes all targets. Later calls are measured by `profiler`, which may be null.
  void clear(Profiler* profiler) {
    targets_.clear();
    actions_.clear();
    profiler_ = profiler;
  }
  /// Adds a target. Reports call it `kind`, such as "Callback". `monitors`: it uses metrics that others log.
  void add(Hooks& target, std::string kind, bool monitors) {
    targets_.push_back({&target, std::move(kind), monitors});
  }

  /// Calls the hook on all targets, in their order.
  template <class... Parameters, class... Arguments>
  void call(const NamedHook<Parameters...>& hook, Arguments&&... arguments) {
    call_all([&] {
      for (const auto& target : targets_) call_one(target, hook, arguments...);
    });
  }

  /// Calls the hook on the targets that monitor, or on the others.
  template <class... Parameters, class... Arguments>
  void call_on(bool monitors, const NamedHook<Parameters...>& hook, Arguments&&... arguments) {
    call_all([&] {
      for (const auto& target : targets_)
        if (target.monitors == monitors) call_one(target, hook, arguments...);
    });
  }

  /// Treats all hooks that `calls` calls as one call: deferred actions run after the last of them.
  template <class Calls>
  void call_together(const Calls& calls) {
    call_all(calls);
  }

  /// Calls the hook on all targets in their order, even if some of them throw. `on_error` gets each
  /// exception.
  template <class... Parameters, class OnError, class... Arguments>
  void call_each(const NamedHook<Parameters...>& hook, const OnError& on_error, Arguments&&... arguments) {
    for (const auto& target : targets_) {
      try {
        call_all([&] { call_one(target, hook, arguments...); });
      } catch (const std::exception& error) {
        on_error(error);
      }
    }
  }

  /// Whether a hook is being called.
  bool is_calling() const { return depth_ > 0; }
  /// Runs `action` after the hook has been called on all targets, unless one of them throws.
  void defer(std::function<void()> action) { deferred_.push_back(std::move(action)); }

 private:
  struct Target {
    Hooks* hooks;
    std::string kind;
    bool monitors;
  };

  template <class Call>
  void call_all(const Call& call) {
    ++depth_;
    try {
      call();
    } catch (...) {
      --depth_;
      deferred_.clear();
      throw;
    }
    if (--depth_ == 0 && !deferred_.empty()) act();
  }

  template <class... Parameters, class... Arguments>
  void call_one(const Target& target, const NamedHook<Parameters...>& hook, Arguments&... arguments) {
    in_place(hook.name, [&] {
      if (profiler_ == nullptr) return (target.hooks->*hook.function)(arguments...);
      const ProfileScope scope(profiler_, action(target, hook.name));
      (target.hooks->*hook.function)(arguments...);
    });
  }
  Action action(const Target& target, std::string_view hook) {
    const std::pair key(static_cast<const Hooks*>(target.hooks), hook);
    const auto known = actions_.find(key);
    if (known != actions_.end()) return known->second;
    const Action action(hook_action_name(target.kind, class_name(*target.hooks), hook));
    return actions_.emplace(key, action).first->second;
  }

  void act() {
    for (const auto& action : std::exchange(deferred_, {})) action();
  }

  std::vector<Target> targets_;
  Profiler* profiler_ = nullptr;
  std::map<std::pair<const Hooks*, std::string_view>, Action> actions_;
  std::vector<std::function<void()>> deferred_;
  int depth_ = 0;
};

}  // namespace lockstep::detail
