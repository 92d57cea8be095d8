// Communicators that wrap another one: CountingBackend records which collectives a rank issues, and when;
// with FaultyBackend the Nth collective is late, or fails.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>

namespace lockstep::testing {

/// One entry of a CountingBackend's list.
struct CountedCall {
  std::string name = {};    ///< "all_reduce", ...; for a mark what mark() was given
  std::uint64_t bytes = 0;  ///< of the tensor that is reduced, sent or received; 0 for a barrier
  bool is_async = false;    ///< whether it was issued without waiting
  bool is_mark = false;     ///< whether it is a mark of the test, and no collective
  std::chrono::steady_clock::time_point issued_at = {};  ///< when it was issued
};

/// Wraps a communicator of this rank. Pass communicator() to the code under test; collectives through it, or
/// through groups that are split from it, are run by the wrapped one and recorded in the order of their
/// issue. Thread-safe.
class LOCKSTEP_API CountingBackend {
 public:
  explicit CountingBackend(const Communicator& comm);
  ~CountingBackend();

  /// A communicator whose collectives are recorded.
  Communicator communicator() const;

  /// Records `name` between collectives: "backward ended".
  void mark(std::string name);
  /// Everything since the beginning, or since clear().
  std::vector<CountedCall> calls() const;
  /// Number of collectives of that name; of all, without one. Marks do not count.
  std::size_t count(std::string_view name = "") const;
  /// Sum of bytes of collectives of that name; of all, without one.
  std::uint64_t bytes(std::string_view name = "") const;
  /// Forgets what was recorded.
  void clear();

 private:
  struct Log;
  class Group;
  std::shared_ptr<Log> log_;
  Communicator communicator_;
};

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
  /// Collectives of communicator() fail as `fault` says.
  FaultyBackend(const Communicator& comm, CommFault fault);
  /// A communicator whose collectives fail.
  Communicator communicator() const { return communicator_; }

 private:
  class Group;
  Communicator communicator_;
};

}  // namespace lockstep::testing
