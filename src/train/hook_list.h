// Calls one hook on every callback and then on the module.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include <lockstep/train/hooks.h>

namespace lockstep::detail {

class HookList {
 public:
  void clear() { targets_.clear(); }
  void add(Hooks& target) { targets_.push_back(&target); }

  template <class... Parameters, class... Arguments>
  void call(void (Hooks::*hook)(Parameters...), Arguments&&... arguments) {
    ++depth_;
    try {
      for (Hooks* target : targets_) (target->*hook)(arguments...);
    } catch (...) {
      --depth_;
      deferred_.clear();
      throw;
    }
    if (--depth_ == 0 && !deferred_.empty()) act();
  }

  /// Whether one is being called.
  bool is_calling() const { return depth_ > 0; }
  /// Does that when all targets have been called, if none of them throws.
  void defer(std::function<void()> action) { deferred_.push_back(std::move(action)); }

 private:
  void act() {
    for (const auto& action : std::exchange(deferred_, {})) action();
  }

  std::vector<Hooks*> targets_;
  std::vector<std::function<void()>> deferred_;
  int depth_ = 0;
};

}  // namespace lockstep::detail
