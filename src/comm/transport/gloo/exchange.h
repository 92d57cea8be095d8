// Exchanges through Gloo's messages: every rank gives a part to every other rank.
//
// Large parts for ranks on the same machine are not sent but offered: the receiver reads them from the
// sender's memory and says so, and only then does the sender go on (docs/decisions/008).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/c10d.h"
#include "comm/transport/gloo/interruptible.h"
#include "comm/transport/peer_memory.h"

namespace lockstep::detail {

/// A contiguous tensor's memory.
at::Tensor as_bytes(const at::Tensor& tensor);

/// From one rank to another those of a tag arrive in the order in which they were sent, in what was posted
/// for them in that order. Thread-safe.
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

/// Not thread-safe.
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

}  // namespace lockstep::detail
