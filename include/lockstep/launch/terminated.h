// What a run that a signal has asked to end throws.
#pragma once

#include <lockstep/base/error.h>
#include <lockstep/base/export.h>

namespace lockstep {

/// A run has ended before its end because it was asked to: by SIGTERM, or because the cluster will start its
/// job again. No failure: what there was has been saved, which the text says. Programs of ls::run() exit with
/// kExitCode, which is what shells make of SIGTERM.
class LOCKSTEP_API Terminated : public Error {
 public:
  static constexpr int kExitCode = 143;

  using Error::Error;
  ~Terminated() override;
};

}  // namespace lockstep
