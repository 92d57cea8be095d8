// What all ranks must say alike, such as the tensors of a module or the options of a strategy.
#pragma once

#include <string>
#include <vector>

#include <lockstep/comm/communicator.h>

namespace lockstep::detail {

struct DifferenceWords {
  const char* what;  ///< "the ranks' modules differ"
  const char* hint;
};

/// Collective, blocking.
/// @throws CollectiveMismatch with the first line that differs from rank 0's, and that
void require_equal_across_ranks(const std::vector<std::string>& lines, const Communicator& comm,
                                const DifferenceWords& words);

}  // namespace lockstep::detail
