// Where ranks that have failed find out, within a deadline, whether all have.
//
// They meet in a store of their own: their group may be broken by the failure, and a rank that is well may
// wait in it for one that is here, so that nothing may be sent over it. The ranks of a meeting agree by one
// counter: whoever raises it from 0 decides for all, the last rank to come that they are complete, one whose
// deadline is over that they are not.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/comm/store.h>

namespace lockstep::detail {

class LOCKSTEP_API FailureBarrier {
 public:
  /// Rank 0 serves the store, at `address`. Collective, blocking.
  /// @throws CommError, Timeout when a rank cannot reach it
  FailureBarrier(const Communicator& communicator, const std::string& address);

  /// Whether all ranks come here before the first one's `deadline` is over, all with the same `place`. It is
  /// found out once; later calls return the same. False where rank 0 does not answer. Blocks for two
  /// deadlines at most.
  bool is_complete(const std::string& place, std::chrono::milliseconds deadline);

 private:
  bool meet(const std::string& place, std::chrono::milliseconds deadline);
  bool places_agree(const std::string& place, std::chrono::milliseconds deadline);
  std::string decide(const std::string& word, std::chrono::milliseconds deadline);

  Store store_;
  int rank_;
  int size_;
  std::optional<bool> was_complete_;
};

}  // namespace lockstep::detail
