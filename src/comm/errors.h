// Turns what c10d and Gloo throw into the errors of lockstep.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

namespace lockstep::detail {

/// Which collective failed where.
struct FailedCollective {
  std::string name;  ///< "all_reduce"
  std::uint64_t sequence = 0;
  int rank = 0;  ///< global
  int size = 1;
  std::string group = {};  ///< "{0, 2}"; empty for the whole job
  std::string hint = {};   ///< what the user may look at, beside what the kind of failure suggests
};

/// "rank 0 of 3, all_reduce seq 7", or "rank 0, all_reduce seq 7 of group {0, 2}".
std::string place_of(const FailedCollective& failed);

/// The text of an exception without the stack frames and source positions of its C++ origin.
std::string plain_text(const std::exception& error);

/// Rethrows the exception being handled: those of lockstep as they are, others as PeerLost, Timeout or
/// CommError.
[[noreturn]] void rethrow_translated(const FailedCollective& failed);

}  // namespace lockstep::detail
