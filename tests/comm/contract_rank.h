// One rank of a contract suite as a process of its own: tests/contracts/contract_ranks.py starts the program
// once for each. Ranks whose devices are connected must be processes, as threads share a device's streams.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include <lockstep/comm/communicator.h>
#include <lockstep/testing/run_ranks.h>

namespace lockstep::testing {

/// Which rank of which world this process is.
struct ContractRank {
  std::string backend = {};
  int rank = 0;
  int size = 1;
  std::filesystem::path folder = {};  ///< of all ranks, in which they meet
};

/// Nothing where ranks are threads of this program.
const std::optional<ContractRank>& contract_rank();

/// Calls `body` with a communicator of this process and of those of the other ranks, which call it, too, as
/// often. A single rank is a group as any other, with a connection of its device.
void run_contract_rank(const std::function<void(Communicator)>& body, const RunRanksOptions& options);

}  // namespace lockstep::testing
