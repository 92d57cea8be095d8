// What is thrown by a run that was asked to end, and by spawn() when a process has failed.
#pragma once

#include <lockstep/base/error.h>
#include <lockstep/base/export.h>

namespace lockstep {

/// A run has ended before its end because it was asked to: by SIGTERM, or because the cluster will start its
/// job again. No failure: what there was has been saved, which the text says. Programs of ls::run() exit with
/// kExitCode, which is what shells make of SIGTERM.
class LOCKSTEP_API Terminated : public Error {
 public:
  /// What a program exits with after the signal: 128 + SIGTERM.
  static constexpr int kExitCode = 143;

  using Error::Error;
  ~Terminated() override;
};

/// A process that spawn() started has failed. Text: rank, pid, and either its exception's text, the signal
/// that killed it or its exit code. Source: torch.multiprocessing's ProcessRaisedException and
/// ProcessExitedException.
class LOCKSTEP_API ProcessError : public Error {
 public:
  /// `rank` ended with `exit_code`.
  ProcessError(const ErrorParts& parts, int rank, int exit_code);
  ~ProcessError() override;

  int rank() const { return rank_; }            ///< -1 where the caller was asked to stop
  int exit_code() const { return exit_code_; }  ///< 128 + N where signal N ended it

 private:
  int rank_;
  int exit_code_;
};

}  // namespace lockstep
