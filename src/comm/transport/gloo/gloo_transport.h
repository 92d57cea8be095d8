// Gloo: sockets between CPUs, over any network. Parts for ranks on the same machine are read from memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/c10d.h"
#include "comm/transport/peer_memory.h"
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

/// Every rank gives a part to every other rank. Large parts for ranks on the same machine are not sent but
/// offered: the receiver reads them from the sender's memory and says so, and only then does the sender go on
/// (docs/decisions/008). Not thread-safe.
class Exchange {
 public:
  /// `seal` vouches for what is offered. Borrows both.
  Exchange(Messages& messages, int tag, Seal& seal);

  /// Whose memory can be read by whom. Until then all goes through sockets.
  void know(const MemoryAccess& access);
  /// Whether all ranks could read each other, and `part` is large enough to be offered: the same on all
  /// ranks.
  bool offers_to_all(const at::Tensor& part) const;

  /// Tensor to[r] goes to rank r, whose tensor comes to from[r]. Either may be empty as a whole, or have
  /// undefined or empty tensors, where there is nothing to move: the other rank knows that, too. Blocking.
  void run(std::span<const at::Tensor> to, std::span<const at::Tensor> from);

 private:
  using Works = std::vector<Messages::Work>;
  struct Offer {
    int peer;
    at::Tensor part;
    at::Tensor note;        // what the peer tells: a MemoryPart, or whether it could read
    Messages::Work answer;  // that brings it
  };
  using Offers = std::vector<Offer>;
  struct Peer {
    bool can_read = false;  // our memory
    bool is_readable = false;
    MemoryOwner owner = {};
  };

  Offers receive(std::span<const at::Tensor> from, Works& works);
  Offers send(std::span<const at::Tensor> to, Works& works);
  void read(Offer& offer, Works& works);
  void await_reader(Offer& offer, Works& works);
  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }

  Messages& messages_;
  int tag_;
  std::vector<Peer> peers_;
  bool are_mutual_ = false;
  Seal& seal_;
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

  /// Learns which ranks can read each other's memory, for exchanges and all_gather() from then on.
  void meet() override;
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
