// Faults on purpose, to see that a job fails well.
#pragma once

#include <cstdint>
#include <span>

#include <lockstep/base/export.h>
#include <lockstep/base/options.h>

namespace lockstep {

/// What a rank does to itself.
enum class FaultKind {
  kNone,
  kKill,   ///< dies by SIGKILL
  kExit,   ///< exits with code 3, without a word
  kThrow,  ///< throws std::runtime_error
  kAbort,  ///< dies by SIGABRT
  kStop,   ///< stops by SIGSTOP until someone continues it
  kHang    ///< sleeps for ever
};

/// A fault and where it happens.
struct Fault {
  FaultKind kind = FaultKind::kNone;
  int rank = 0;           ///< the global rank it befalls
  std::int64_t step = 0;  ///< the step at which it does
};

LOCKSTEP_API std::span<const OptionName<FaultKind>> option_names(FaultKind);
LOCKSTEP_API void describe(OptionVisitor& visitor, Fault& fault);

/// Does to this process what `fault` says if this is its rank and step, else nothing; nothing either in ranks
/// that a launcher has started anew after a failure (TORCHELASTIC_RESTART_COUNT).
/// @throws std::runtime_error for FaultKind::kThrow
LOCKSTEP_API void inject(const Fault& fault, int rank, std::int64_t step);

}  // namespace lockstep
