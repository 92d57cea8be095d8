// What each rank of comm_case does.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::testing {

struct CaseInput {
  std::string name;
  int world = 2;
  std::string backend;
  std::uint64_t seed = 0;
  int port = 0;
  int listen_fd = -1;  ///< listens on port already; rank 0's
};

/// What became of one rank, in memory that all processes share.
struct CaseReport {
  char error[32] = {};  ///< class of the error; empty: none
  char text[1024] = {};
  int named[16] = {};
  int named_count = 0;
  double ms = 0;  ///< from the misdeed, or this rank's own call if that came later, to its end
  std::uint64_t result_hash = 0;
  std::atomic<std::int64_t> misdeed_ns{0};  ///< when this rank misbehaved
  std::atomic<bool> is_done{false};

  void set_error(std::string_view name, std::string_view what = {});
};

std::vector<std::string> case_names();

/// The collective that the seed chooses: "all_reduce(sum) of float32 [100, 7]".
std::string collective_text(const CaseInput& input);

/// The rank that misbehaves.
int victim_of(const CaseInput& input);

/// Runs rank `rank`; the one that misbehaves may not return.
void run_case(const CaseInput& input, int rank, std::span<CaseReport> reports);

}  // namespace lockstep::testing
