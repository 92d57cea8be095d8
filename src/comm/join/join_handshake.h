// The roll call: who is there and whether all mean the same, before anything is connected.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/comm/store.h>

#include "comm/join/roll_entry.h"

namespace lockstep::detail {

/// What a rank says of itself.
struct Attendance {
  int rank = 0;
  int world_size = 1;
  std::map<std::string, std::string> settings = {};  ///< by name; must be equal on all ranks
  bool is_server = false;                            ///< its process serves the store
  std::string left_over = {};  ///< where the store outlives processes (a file): its name
};

/// What all ranks have said, by rank.
using Roll = std::vector<RollEntry>;

/// Tells the others that `own` is here and waits for all of them. Collective. Whoever finds something wrong
/// leaves it in the store, so that all who are there throw the same, within moments.
/// @throws Timeout naming the missing ranks; CommError for a rank that is there twice, or a store left over
///   from an earlier run; CollectiveMismatch for ranks with another world size or other settings
Roll roll_call(Store& store, const Attendance& own, std::chrono::steady_clock::time_point deadline,
               std::chrono::milliseconds timeout);

/// @throws PeerLost naming the first rank whose process ran on this host and runs no more
void require_alive(const Roll& roll);

/// Tells those who wait in roll_call() that their group cannot come about: they throw a CommError with
/// `parts`. Does not block.
void call_off(Store& store, const ErrorParts& parts);

}  // namespace lockstep::detail
