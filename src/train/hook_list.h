// Calls one hook on every callback and then on the module.
#pragma once

#include <utility>
#include <vector>

#include <lockstep/train/hooks.h>

namespace lockstep::detail {

class HookList {
 public:
  void clear() { targets_.clear(); }
  void add(Hooks& target) { targets_.push_back(&target); }

  template <class... Parameters, class... Arguments>
  void call(void (Hooks::*hook)(Parameters...), Arguments&&... arguments) const {
    for (Hooks* target : targets_) (target->*hook)(arguments...);
  }

 private:
  std::vector<Hooks*> targets_;
};

}  // namespace lockstep::detail
