// The slots of base/rank_status.h in memory that the supervisor and its ranks share.
#pragma once

#include <lockstep/base/rank_status.h>

#include "launch/posix.h"

namespace lockstep::launch {

/// One RankStatus per local rank, in an anonymous file that vanishes with its last user.
class StatusTable {
 public:
  /// @throws Error when there is no memory or descriptor for it
  explicit StatusTable(int ranks);
  /// Whether that rank writes to its slot: a program of lockstep does, from join_launcher() on.
  bool is_written(int local_rank) const { return written_[local_rank].load() != 0; }
  /// Marks all slots as written, for forked ranks, which need not call join_launcher().
  void expect_all_written();
  StatusTable(const StatusTable&) = delete;
  StatusTable& operator=(const StatusTable&) = delete;
  ~StatusTable();

  RankStatus& operator[](int local_rank) { return slots_[local_rank]; }
  const RankStatus& operator[](int local_rank) const { return slots_[local_rank]; }
  /// For attach_rank_status() of a program that is executed; closed on exec unless the child says otherwise.
  int fd() const { return fd_.get(); }
  /// For ranks that have the mapping anyway.
  void close_fd() { fd_.reset(); }

 private:
  int ranks_;
  UniqueFd fd_;
  RankStatus* slots_;
  std::atomic<std::uint32_t>* written_;  ///< stored behind the slots, one for each
};

/// Makes slot `local_rank` of the table behind `fd` this process's slot until it ends; closes `fd`. Where
/// that is something else, since a program in between has closed it, only warns.
/// @throws ConfigError when `fd` is no table of `ranks` slots
void attach_rank_status(int fd, int ranks, int local_rank);

/// Whether attach_rank_status() has not found a table, so that the supervisor learns nothing of this rank.
bool is_status_lost();

}  // namespace lockstep::launch
