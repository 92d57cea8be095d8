// How the ranks of a job connect with each other: every rank listens, and calls those below it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/base/unique_fd.h>

#include "base/sockets.h"
#include "rendezvous/mesh_listener.h"

namespace lockstep::rendezvous {

/// What a caller says first, and the called rank answers with. Whoever does not know the token is no
/// rank of this job.
struct Hello {
  std::uint64_t magic = 0x31'48'53'4d'2d'4b'53'4c;  // "LSK-MSH1"
  std::uint32_t rank = 0;
  std::uint32_t world_size = 0;
  std::uint64_t token = 0;
};

/// Connects `own` rank with every other one; `endpoints` are by rank. Collective, blocking.
/// @returns connections by rank; none at its own place
/// @throws Timeout naming the ranks that could not be reached or did not call; CommError when this process
/// can
///   open no more connections
LOCKSTEP_API std::vector<UniqueFd> connect_mesh(const MeshListener& listener, const Hello& own,
                                                std::span<const Endpoint> endpoints, Deadline deadline);

}  // namespace lockstep::rendezvous
