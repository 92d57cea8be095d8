// What this rank is doing right now, in memory that its supervisor can read after it died.
//
// A launcher maps one RankStatus per rank before it starts them and calls
// use_rank_status() in each. Writers store with relaxed atomics: a few nanoseconds
// per collective, no system call. Where nobody supervises, writes go to a private slot.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include <lockstep/base/export.h>

namespace lockstep {

/// How a rank ended, as far as the rank itself could tell.
enum class RankOutcome : std::uint32_t {
  kRunning = 0,     ///< still running, or died without a report
  kDone = 1,        ///< returned
  kFailed = 2,      ///< its own error: a root cause
  kPeerFailed = 3,  ///< PeerLost: most likely the consequence of another rank's failure
  kTimedOut = 4     ///< Timeout: a root cause only where all ranks that ended before have kPeerFailed
};

/// What a rank did outside of collectives last.
enum class RankActivity : std::uint32_t {
  kUnknown,
  kData,
  kStep,
  kBackward,
  kOptimizer,
  kEvaluation,
  kCheckpoint
};

/// Where a rank's memory is, as far as it has said so. Bytes.
struct RankMemoryStatus {
  std::atomic<std::int64_t> before_training{0};  ///< resident when training began; 0: it has not
  std::atomic<std::int64_t> parameters{0};
  std::atomic<std::int64_t> gradients{0};
  std::atomic<std::int64_t> optimizer{0};
  char advice[400] = {};  ///< what would make room
};

/// One rank's slot. Lock-free and free of pointers, so that it can lie in shared memory.
struct RankStatus {
  std::atomic<std::uint64_t> sequence{0};        ///< number of the collective entered last
  std::atomic<std::uint32_t> in_collective{0};   ///< collectives entered and not left
  std::atomic<std::uint64_t> optimizer_step{0};  ///< optimizer steps done
  std::atomic<std::uint32_t> joins{0};    ///< how often this rank has begun to join all ranks of the job
  std::atomic<std::uint32_t> in_join{0};  ///< joins begun and not ended
  std::atomic<RankOutcome> outcome{RankOutcome::kRunning};
  char collective[32] = {};  ///< name of the collective entered last
  char error[2048] = {};     ///< text of the error, when outcome says so
  std::atomic<RankActivity> activity{RankActivity::kUnknown};
  RankMemoryStatus memory = {};
  std::atomic<std::uint32_t> notices{0};  ///< how many there were
  char notice[1024] = {};                 ///< the last one, which the supervisor is to print
};

/// This process's slot.
LOCKSTEP_API RankStatus& rank_status();

/// Makes `slot` this process's slot; it must outlive the process's work. Call before threads start.
LOCKSTEP_API void use_rank_status(RankStatus& slot);

/// Notes that a collective is entered; returns its sequence number, counted from 1. `name` is a
/// string such as "all_reduce" of at most 31 characters; longer ones are cut.
LOCKSTEP_API std::uint64_t enter_collective(std::string_view name);

/// Notes that the collective was left.
LOCKSTEP_API void leave_collective();

/// Notes, as long as it lives, that this rank is joining the ranks of the job and waits for each of them.
class LOCKSTEP_API JoinNote {
 public:
  JoinNote();
  ~JoinNote();
  JoinNote(const JoinNote&) = delete;
  JoinNote& operator=(const JoinNote&) = delete;

 private:
  RankStatus& slot_;
};

/// Calls `probe` with the sequence number of every collective that this process enters from now on, in the
/// thread that does; null: no more. What it throws, the collective throws. For tests that make ranks fail.
LOCKSTEP_API void on_enter_collective(void (*probe)(std::uint64_t sequence));

/// Where a rank is, or was at its end: "in all_reduce seq 5", "after all_reduce seq 5, in backward of step
/// 12" or "before its first collective".
LOCKSTEP_API std::string whereabouts(const RankStatus& status);

/// Notes where this rank is. Costs a store.
inline void note_activity(RankActivity activity) {
  rank_status().activity.store(activity, std::memory_order_relaxed);
}

/// Has the supervisor print `text`; false where there is none. From one thread at a time.
LOCKSTEP_API bool give_notice(std::string_view text);

/// Notes where this rank's memory is from now on, and what would make room.
LOCKSTEP_API void note_memory(std::int64_t before_training, std::int64_t parameters, std::int64_t gradients,
                              std::int64_t optimizer, std::string_view advice);

/// Notes how the rank ended and, for failures, with which text.
LOCKSTEP_API void set_outcome(RankOutcome outcome, std::string_view error = {});

}  // namespace lockstep
