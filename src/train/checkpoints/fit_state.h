// What saving a fit and resuming it share.
#pragma once

#include <map>
#include <string>
#include <variant>

#include <lockstep/train/hooks.h>

#include "train/checkpoints/checkpoint_session.h"
#include "train/data/data_place.h"
#include "train/logging/class_name.h"

namespace lockstep::detail {

// In manual optimisation only the module knows whether a window is open.
inline bool has_gradients_to_keep(const FitParts& fit) {
  return is_inside_window(fit.progress) || !fit.setup.module->automatic_optimization();
}

// The second object of a kind is KEY#1, or KEY.1 where the key becomes a file name.
inline std::string numbered(const std::string& key, std::size_t number, char mark = '.') {
  return number == 0 ? key : key + mark + std::to_string(number);
}

// The class of a schedule, such as "StepLR".
inline std::string schedule_name(const LRScheduler& schedule) {
  return std::visit([](const auto& own) { return class_name(own); }, schedule.scheduler);
}

// The keys of several callbacks of one class get numbers.
template <class Act>
void for_each_callback(const FitParts& fit, Act act) {
  std::map<std::string, std::size_t> seen;
  for (const auto& callback : fit.setup.callbacks) {
    const auto key = callback->state_key();
    const auto number = seen[key]++;
    act(numbered(key, number, '#'), *callback);
  }
}

}  // namespace lockstep::detail
