#include "comm/contract_rank.h"

#include <lockstep/base/env.h>
#include <lockstep/comm/init.h>
#include <lockstep/comm/store.h>

#include "comm/group/connected_group.h"

namespace lockstep::testing {
namespace {

std::optional<ContractRank> rank_of_environment() {
  const auto rank = env::get("CONTRACT_RANK"), size = env::get("CONTRACT_RANKS");
  if (!rank || !size) return std::nullopt;
  return ContractRank{.backend = env::get("CONTRACT_BACKEND").value_or("auto"),
                      .rank = std::stoi(*rank),
                      .size = std::stoi(*size),
                      .folder = env::get("CONTRACT_FOLDER").value_or(".")};
}

// init_communicator() connects nothing for a single rank.
Communicator connected_alone(const CommOptions& options, Store store) {
  const auto identity = detail::identity_of_job(options.rank, options.world_size, /*id=*/1);
  return Communicator(detail::connect_group(
      {.options = {options, /*own_address=*/"127.0.0.1"}, .store = std::move(store)}, identity, [] {}));
}

}  // namespace

const std::optional<ContractRank>& contract_rank() {
  static const auto rank = rank_of_environment();
  return rank;
}

void run_contract_rank(const std::function<void(Communicator)>& body, const RunRanksOptions& options) {
  static int number = 0;  // of the next group; the same in all ranks
  const auto& own = *contract_rank();
  const CommOptions comm_options{.backend = options.backend,
                                 .rank = own.rank,
                                 .world_size = own.size,
                                 .timeout = options.comm_timeout,
                                 .reduction = options.reduction,
                                 .check_collectives = options.check_collectives};
  auto store = make_file_store(own.folder / ("store_" + std::to_string(number++)), own.size);
  const auto comm = own.size == 1 ? connected_alone(comm_options, std::move(store))
                                  : init_communicator(comm_options, std::move(store));
  body(comm);
  comm.close();
}

}  // namespace lockstep::testing
