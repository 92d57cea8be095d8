// Jobs and results between the test process and the zygote, and ranks that the zygote forks for them.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/rank_status.h>
#include <lockstep/testing/fork_ranks.h>

#include "launch/posix.h"

namespace lockstep::testing {

// Numbers and texts in one string of bytes, to send them to a copy of this process.

/// A queue of numbers and texts: the first one that was put is taken first.
class Packet {
 public:
  Packet() = default;
  explicit Packet(std::string bytes) : bytes_(std::move(bytes)) {}

  Packet& put(std::int64_t number) {
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof(number));
    return *this;
  }
  Packet& put(std::string_view text) {
    put(static_cast<std::int64_t>(text.size()));
    bytes_.append(text);
    return *this;
  }

  /// @throws Error if nothing is left
  std::int64_t take_number() {
    std::int64_t number = 0;
    std::memcpy(&number, take(sizeof(number)).data(), sizeof(number));
    return number;
  }
  /// @throws Error if nothing is left
  std::string take_text() { return std::string(take(static_cast<std::size_t>(take_number()))); }

  const std::string& bytes() const { return bytes_; }

 private:
  std::string_view take(std::size_t size) {
    if (bytes_.size() - next_ < size) throw Error("testing", {.what = "a packet ends too early"});
    next_ += size;
    return std::string_view(bytes_).substr(next_ - size, size);
  }

  std::string bytes_;
  std::size_t next_ = 0;
};

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

/// The report of a rank at its end.
struct RankReport {
  std::string result;
  std::string error;
  std::vector<std::string> failed_assertions;

  Packet packed() const;
  static RankReport unpacked(Packet packet);
};

// The copy of the test program from which ranks are forked, as seen from the test.

/// Lets the zygote run `job`. Blocks; concurrent calls wait for each other.
/// @throws ConfigError without start_zygote(); Error when the zygote is gone
JobReport run_in_zygote(const RankJob& job);

// One call of fork_ranks() in the zygote: forks the ranks, waits for them, tells how they ended.

/// Blocks until all ranks have ended or the deadline has passed; none is left then. SIGCHLD must be blocked.
/// Never throws: failures are in the report.
JobReport run_job(const RankJob& job, const AssertionCatcher& catcher) noexcept;

// The state that a rank shares with the zygote while it runs.

struct RankSlot {
  RankStatus status;
  std::atomic<bool> has_joined{false};     ///< it is connected to the others
  std::atomic<bool> has_met_fault{false};  ///< its fault is about to happen
};

/// One slot per rank, shared with the children that are forked while it lives.
class SharedSlots {
 public:
  explicit SharedSlots(int ranks) : count_(static_cast<std::size_t>(ranks)) {
    void* memory =
        ::mmap(nullptr, count_ * sizeof(RankSlot), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) launch::throw_errno("cannot map the slots of the ranks");
    slots_ = static_cast<RankSlot*>(memory);
    std::uninitialized_default_construct_n(slots_, count_);
  }
  SharedSlots(const SharedSlots&) = delete;
  ~SharedSlots() { ::munmap(slots_, count_ * sizeof(RankSlot)); }

  RankSlot& operator[](int rank) const { return slots_[rank]; }

 private:
  std::size_t count_;
  RankSlot* slots_;
};

/// The data of a rank, copied from the zygote by the fork, so that they outlive it.
struct ForkedRank {
  const RankJob& job;
  const AssertionCatcher& catcher;
  RankBody body;
  int rank;
  RankSlot& slot;
  int report_fd;  ///< a file for its RankReport
  int port;       ///< on which rank 0 listens
  int listen_fd;  ///< the socket that does
};

/// Runs the body as rank `self` and ends the process. Its exit code is 1 for an exception, else 0.
[[noreturn]] void run_forked_rank(const ForkedRank& self) noexcept;

/// The body registered as `name`.
/// @throws ConfigError if there is none, or more than one
RankBody find_rank_body(const std::string& name);

}  // namespace lockstep::testing
