// What an operator's schema says about running it a second time.
#pragma once

#include <cstdint>

namespace c10 {
class OperatorHandle;
}

namespace lockstep::detail {

struct ReplayInfo {
  bool can_replay = true;        ///< not so collectives: other ranks would have to take part
  bool has_effect = true;        ///< gives tensors or writes to some
  bool is_defined = true;        ///< what it gives follows from its arguments; not so empty_like()
  bool draws = false;            ///< may draw random numbers
  std::uint64_t statistics = 0;  ///< bit i: argument i, of the first 64, is a running mean or variance, which
                                 ///< batch normalisation writes to though its schema does not say so
};

/// Looked up once per thread and operator, then remembered.
const ReplayInfo& replay_info(const c10::OperatorHandle& op);

}  // namespace lockstep::detail
