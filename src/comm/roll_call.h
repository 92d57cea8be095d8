// The roll call: who is there, before anything is connected.
#pragma once

#include <chrono>

#include <lockstep/comm/store.h>

namespace lockstep::detail {

/// Tells the others that `rank` of `world_size` is here and waits for all of them. Collective.
/// @throws Timeout naming the missing ranks; CommError for a rank that is there twice; CollectiveMismatch
///   for ranks with another world size
void roll_call(Store& store, int rank, int world_size, std::chrono::steady_clock::time_point deadline,
               std::chrono::milliseconds timeout);

}  // namespace lockstep::detail
