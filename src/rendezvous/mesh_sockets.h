// How the ranks of a job connect with each other: every rank listens, and calls those below it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/base/unique_fd.h>

#include "rendezvous/connection.h"

namespace lockstep::rendezvous {

/// Where a rank can be called.
struct Endpoint {
  std::string host;  ///< a numeric address
  int port = 0;
};

/// Waits for calls of other ranks.
class LOCKSTEP_API MeshListener {
 public:
  /// Listens on a free port of the interface that leads to `main_address`, or of the one named `interface`.
  /// @throws CommError
  explicit MeshListener(const std::string& main_address, const std::string& interface = {});

  const Endpoint& endpoint() const { return endpoint_; }
  int fd() const { return socket_.get(); }

 private:
  UniqueFd socket_;
  Endpoint endpoint_;
};

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
/// @throws Timeout naming the ranks that could not be reached or did not call
LOCKSTEP_API std::vector<UniqueFd> connect_mesh(const MeshListener& listener, const Hello& own,
                                                std::span<const Endpoint> endpoints, Deadline deadline);

}  // namespace lockstep::rendezvous
