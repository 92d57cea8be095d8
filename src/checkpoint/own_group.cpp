#include "checkpoint/own_group.h"

#include <numeric>
#include <vector>

namespace lockstep::detail {

Communicator own_group(const Communicator& communicator) {
  std::vector<int> all(static_cast<std::size_t>(communicator.size()));
  std::iota(all.begin(), all.end(), 0);
  return communicator.size() == 1 ? Communicator() : communicator.new_group(all).value();
}

}  // namespace lockstep::detail
