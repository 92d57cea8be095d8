// A barrier with a deadline for ranks that have failed: it tells them whether all ranks have.
//
// It uses a store of its own: the ranks' group may be broken by the failure, and a rank that has not failed
// may be waiting in it, so that nothing may be sent over it. One counter in the store decides: the rank that
// raises it from 0 decides for all ranks. The last rank to arrive decides that all have arrived, a rank whose
// deadline has passed that they have not.
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

  /// Whether all ranks call this before the first one's `deadline` has passed, all with the same `place`. The
  /// answer is found once; later calls return the same. False where rank 0 does not answer. Blocks for at
  /// most two deadlines.
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
