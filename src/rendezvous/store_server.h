// The key-value store that a launcher serves to the ranks of its job.
#pragma once

#include "rendezvous/frame_server.h"
#include "rendezvous/kv_service.h"
#include "rendezvous/tcp_endpoint.h"

namespace lockstep::rendezvous {

/// Serves as long as it lives, on a thread of its own, those who know `key`.
class StoreServer {
 public:
  /// `more`: services beside the store, which outlive this.
  StoreServer(BoundSocket socket, std::string key, FrameServices more = {})
      : endpoint_(std::move(socket.endpoint)),
        server_(std::move(socket.fds), std::move(key), with_store(std::move(more))) {}

  /// Where clients find it.
  const TcpEndpoint& endpoint() const { return endpoint_; }

 private:
  FrameServices with_store(FrameServices services) {
    services[kKvLetter] = &store_;
    return services;
  }

  TcpEndpoint endpoint_;
  KvService store_;
  FrameServer server_;
};

}  // namespace lockstep::rendezvous
