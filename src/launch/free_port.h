// A port of this machine that is kept free until somebody else takes it.
#pragma once

#include "launch/posix.h"

namespace lockstep::launch {

/// While it lives no other program gets the port by chance, and nobody can connect to it.
class FreePort {
 public:
  /// @throws Error when there is none
  FreePort();

  int number() const { return number_; }

 private:
  UniqueFd socket_;
  int number_ = 0;
};

}  // namespace lockstep::launch
