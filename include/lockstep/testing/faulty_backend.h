// FaultyBackend: a communicator whose Nth collective is late, or fails.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>

namespace lockstep::testing {

/// A fault that happens once.
struct CommFault {
  std::uint64_t nth = 1;               ///< which collective, counted from 1
  std::string collective = {};         ///< only those of this name are counted: "all_reduce"; empty: all
  std::chrono::milliseconds delay{0};  ///< waits before it is issued
  bool fails = true;  ///< it is never issued, and throws CommError: in wait(), if asynchronous
};

/// Wraps a communicator of this rank; pass communicator() to the code under test. The wrapped one has no
/// fault: for faults of real connections and processes see testing::run_ranks and --fault.
class LOCKSTEP_API FaultyBackend {
 public:
  FaultyBackend(const Communicator& comm, CommFault fault);
  Communicator communicator() const { return communicator_; }

 private:
  class Group;
  Communicator communicator_;
};

}  // namespace lockstep::testing
