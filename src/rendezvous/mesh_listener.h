// Where a rank can be called by the others.
#pragma once

#include <string>

#include <lockstep/base/export.h>
#include <lockstep/base/unique_fd.h>

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

}  // namespace lockstep::rendezvous
