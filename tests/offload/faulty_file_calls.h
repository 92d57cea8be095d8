// Makes calls of pread, pwrite and posix_fallocate in this process fail, or say that they did less than they
// were asked for.
#pragma once

#include <sys/types.h>

namespace lockstep::offload {

struct Fault {
  int after = 0;           ///< calls that succeed first
  int error_number = 0;    ///< that all later ones fail with; 0: none
  ssize_t most_bytes = 0;  ///< that a call says to have moved; 0: as many as it was asked for
};

/// While alive, calls have this fault; those of one kind, by name.
class FaultyFileCalls {
 public:
  FaultyFileCalls(const char* call, const Fault& fault);
  FaultyFileCalls(const FaultyFileCalls&) = delete;
  FaultyFileCalls& operator=(const FaultyFileCalls&) = delete;
  ~FaultyFileCalls();

  /// How many calls there were.
  int calls() const;
};

}  // namespace lockstep::offload
