// Which hook of the program an exception came from, for what is said of the failure.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// Notes that the exception that is being handled came from `place`, such as "training_step". Only the first
/// note about an exception counts, which is the innermost one. Thread-safe.
LOCKSTEP_API void note_failure_place(std::string_view place);

/// Adds `detail`, such as " of step 2 (epoch 0, batch 2)", to what is noted about the exception that is being
/// handled, once. Thread-safe.
LOCKSTEP_API void note_failure_detail(std::string_view detail);

/// "; in training_step of step 2 (epoch 0, batch 2)" for the exception that is being handled; empty where
/// nothing is noted about it. Thread-safe.
LOCKSTEP_API std::string failure_place();

/// Runs `call`, and notes `place` where it throws. Costs nothing where it does not.
template <class Call>
decltype(auto) in_place(std::string_view place, Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (...) {
    note_failure_place(place);
    throw;
  }
}

}  // namespace lockstep::detail
