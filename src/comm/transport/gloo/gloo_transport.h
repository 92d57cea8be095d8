// Gloo: sockets between CPUs, over any network. Parts for ranks on the same machine are read from memory.
#pragma once

#include <memory>

#include "comm/c10d.h"
#include "comm/transport/connect_options.h"
#include "comm/transport/gloo/exchange.h"
#include "comm/transport/gloo/interruptible.h"
#include "comm/transport/transport.h"

namespace lockstep::detail {

class LOCKSTEP_API GlooTransport final : public Transport {
 public:
  /// `backend` is connected, and its abort() makes what it does fail.
  explicit GlooTransport(c10::intrusive_ptr<c10d::Backend> backend);
  ~GlooTransport() override;

  void exchange(std::span<const at::Tensor> to, std::span<const at::Tensor> from) override;
  void all_gather(at::Tensor output, at::Tensor input) override;
  void all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> output_bytes,
                  std::vector<std::int64_t> input_bytes) override;
  void broadcast(at::Tensor tensor, int root) override;
  void barrier() override;
  void send(const at::Tensor& tensor, int dst, int tag) override;
  void recv(const at::Tensor& tensor, int src, int tag) override;

  NativeReduction native_reduction(at::ScalarType dtype, ReduceOp op) const override;
  void all_reduce(at::Tensor tensor, ReduceOp op) override;
  void reduce(at::Tensor tensor, int root, ReduceOp op) override;

  /// Learns which ranks can read each other's memory, for exchanges and all_gather() from then on.
  MemoryAccess meet() override;
  void abort() override;

 private:
  c10::intrusive_ptr<c10d::Backend> backend_;
  Interruptible waits_;
  Messages messages_;
  Exchange exchange_;
};

/// The `connect` of Gloo's row in the table of transports. Copies of the sockets are closed in programs that
/// this process executes, and in forked children.
std::shared_ptr<Transport> connect_gloo(const ConnectOptions& options, const Store& store,
                                        const FailureCheck& check);

}  // namespace lockstep::detail
