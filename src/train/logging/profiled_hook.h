// Hooks that are measured one by one, under Lightning's names. Those that callbacks have, too:
// callbacks/hook_list.h; parts of a step: loops/batch_step.h.
#pragma once

#include <string_view>

#include <lockstep/profilers/profiler.h>

#include "train/logging/class_name.h"

namespace lockstep::detail {

/// What Lightning calls a module and a data module in names of actions.
inline constexpr std::string_view kModuleKind = "LightningModule";
inline constexpr std::string_view kDataModuleKind = "LightningDataModule";

/// Measures `hook` of `owner` until the scope ends. Without a `profiler` nothing is measured. The name is
/// looked up: not for what happens in every step.
template <class Owner>
ProfileScope profiled_hook(Profiler* profiler, std::string_view kind, const Owner& owner,
                           std::string_view hook) {
  if (profiler == nullptr) return {nullptr, std::string_view()};
  return {profiler, hook_action_name(kind, class_name(owner), hook)};
}

}  // namespace lockstep::detail
