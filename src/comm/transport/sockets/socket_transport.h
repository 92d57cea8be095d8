// Our own sockets: one connection between every two ranks, over any network.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/transport/sockets/socket_links.h"
#include "comm/transport/transport.h"

namespace lockstep::detail {

class LOCKSTEP_API SocketTransport final : public Transport {
 public:
  /// `sockets` are connected and do not block, by rank; none at the own place.
  SocketTransport(int rank, std::vector<UniqueFd> sockets, const SocketLinks::Options& options);

  void exchange(std::span<const at::Tensor> to, std::span<const at::Tensor> from) override;
  void all_gather(at::Tensor output, at::Tensor input) override;
  void all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> output_bytes,
                  std::vector<std::int64_t> input_bytes) override;
  void broadcast(at::Tensor tensor, int root) override;
  void barrier() override;
  void send(const at::Tensor& tensor, int dst, int tag) override;
  void recv(const at::Tensor& tensor, int src, int tag) override;

  bool has_transfers() const override { return true; }
  std::unique_ptr<Transfers> begin_transfers() override;

  void abort() override { links_.abort(); }

 private:
  class Call;

  void exchange_bytes(std::span<const std::span<const std::byte>> to,
                      std::span<const std::span<std::byte>> from);
  void broadcast_in_parts(std::span<std::byte> bytes, int root);

  SocketLinks links_;
};

/// The `connect` of its row in the table of transports.
std::shared_ptr<Transport> connect_sockets(const ConnectOptions& options, const Store& store,
                                           const FailureCheck& check);

}  // namespace lockstep::detail
