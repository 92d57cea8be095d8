// Where the ranks of `lockstep run` write to. Names, numbers and defaults are torchrun's.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>

namespace lockstep {

/// Which of stdout (1) and stderr (2), or both (3), or none (0), of which ranks.
class LOCKSTEP_API StreamChoice {
 public:
  StreamChoice() = default;
  /// `3` for all ranks, or `0:3,1:1` by local rank. The error says what would be accepted.
  static Expected<StreamChoice> parse(std::string_view text);

  bool has_stdout(int local_rank) const { return (of(local_rank) & 1) != 0; }
  bool has_stderr(int local_rank) const { return (of(local_rank) & 2) != 0; }
  /// The largest local rank that is named; -1: none is.
  int last_rank() const { return by_rank_.empty() ? -1 : by_rank_.rbegin()->first; }
  bool is_none() const { return all_ == 0 && by_rank_.empty(); }

 private:
  int of(int local_rank) const;

  int all_ = 0;
  std::map<int, int> by_rank_;
};

/// By default ranks write to the launcher's own stdout and stderr.
struct OutputOptions {
  std::filesystem::path log_dir =
      {};                       ///< gets RUN/attempt_N/LOCAL_RANK/{stdout,stderr}.log; empty: a temporary one
  StreamChoice redirects = {};  ///< to files instead
  StreamChoice tee = {};        ///< to files and, with a prefix on each line, here
  std::set<int> local_ranks_filter = {};  ///< only these are shown here; empty: all
  std::string role = "default";           ///< the prefix is `[ROLE RANK]:`, without the blank
};

}  // namespace lockstep
