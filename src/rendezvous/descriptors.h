// How many descriptors the first group of a rank opens.
#pragma once

#include <cstdint>

namespace lockstep::rendezvous {

/// Measured: those of stores, mesh and transport, and of the run's own files. Rank 0 serves the others and
/// needs more.
constexpr std::int64_t descriptors_of_group(int rank, int world_size) {
  constexpr int kAlways = 20;
  const int of_peer = rank == 0 ? 3 : 2;
  return kAlways + std::int64_t{of_peer} * (world_size - 1);
}

}  // namespace lockstep::rendezvous
