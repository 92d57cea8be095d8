// What the test process asks of the zygote, and what it is told.
#pragma once

#include <string>
#include <vector>

#include <lockstep/testing/fork_ranks.h>

#include "testing/packet.h"

namespace lockstep::testing {

/// One call of fork_ranks().
struct RankJob {
  int ranks = 1;
  std::string name;
  std::string argument;
  ForkRanksOptions options;

  Packet packed() const;
  static RankJob unpacked(Packet packet);
};

/// Why a call fails as a whole.
enum class JobFailure {
  kNone,
  kTimeout,  ///< Timeout
  kOther     ///< Error
};

/// The outcome of a call. Where there is a failure, ranks may be missing.
struct JobReport {
  JobFailure failure = JobFailure::kNone;
  std::string what;  ///< of the failure
  std::string got;   ///< of the failure: which ranks, and where they are
  std::vector<RankResult> ranks = {};

  Packet packed() const;
  static JobReport unpacked(Packet packet);
};

/// What a rank says for itself at its end.
struct RankReport {
  std::string result;
  std::string error;
  std::vector<std::string> failed_assertions;

  Packet packed() const;
  static RankReport unpacked(Packet packet);
};

}  // namespace lockstep::testing
