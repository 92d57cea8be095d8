// Gloo: sockets between CPUs, over any network.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/c10d.h"
#include "comm/transport/transport.h"

namespace lockstep::detail {

/// Waits for Gloo that abort() ends.
///
/// Gloo can miss the end of a connection: a receive that is posted just when the other end dies waits for
/// the whole timeout, and no call reaches it. So nobody waits for Gloo itself without a way to stop.
class LOCKSTEP_API Interruptible {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;

  /// Blocks until the collective `work` is done; throws what it failed with. After abort(), a collective that
  /// does not end by itself soon makes this throw while Gloo still uses its tensors.
  void await_collective(const Work& work);

  /// The same for a message.
  void await_message(const Work& work);

  /// Ends all waits, those of now and later ones. Does not block.
  void abort();

  /// Whether a caller left while Gloo still used its tensors. Nobody may wait for Gloo's thread then.
  bool has_abandoned() const { return has_abandoned_; }

 private:
  std::atomic<bool> is_aborted_{false};
  std::atomic<bool> has_abandoned_{false};
  std::mutex mutex_;  // guards messages_
  std::vector<Work> messages_;
};

/// Gloo's messages. From one rank to another those of a tag arrive in the order in which they were sent, in
/// what was posted for them in that order. Thread-safe.
class Messages {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;

  /// Borrows both.
  Messages(c10d::Backend& backend, Interruptible& waits) : backend_(backend), waits_(waits) {}

  int rank() const { return backend_.getRank(); }
  int size() const { return backend_.getSize(); }

  /// These two take contiguous tensors and return at once; the Work holds the tensor.
  Work send(const at::Tensor& tensor, int dst, int tag);
  Work recv(const at::Tensor& tensor, int src, int tag);
  /// Blocking. @throws what the message failed with
  void await(const Work& work) { waits_.await_message(work); }

 private:
  c10d::Backend& backend_;
  Interruptible& waits_;
};

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

  void abort() override;

 private:
  c10::intrusive_ptr<c10d::Backend> backend_;
  Interruptible waits_;
  Messages messages_;
};

/// The `connect` of Gloo's row in the table of transports. Copies of the sockets are closed in programs that
/// this process executes, and in forked children.
std::shared_ptr<Transport> connect_gloo(const ConnectOptions& options, const Store& store,
                                        const FailureCheck& check);

}  // namespace lockstep::detail
