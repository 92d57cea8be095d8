// One thread's calls and what each of them did.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// What a thread was doing.
enum class Phase { kCompute, kCommunication, kData, kCheckpoint };
inline constexpr std::size_t kPhases = 4;

/// The phase of an action, by its category in traces and by Lightning's names of those that fetch a batch.
LOCKSTEP_API Phase phase_of(std::string_view category, std::string_view name);

struct Call {
  double begin_us = 0;
  double end_us = 0;
  Phase phase = Phase::kCompute;
};

/// How long a thread was in each phase.
struct PhaseTimes {
  std::array<double, kPhases> us = {};
  double span_us = 0;  ///< from the first begin to the last end

  double operator[](Phase phase) const { return us[static_cast<std::size_t>(phase)]; }
};

/// Adds up `calls`, which contain each other or lie apart: each counts for the time that no call within it
/// covers. Calls within communication, data or checkpoint are part of it.
LOCKSTEP_API PhaseTimes phase_times(std::vector<Call> calls);

}  // namespace lockstep::detail
