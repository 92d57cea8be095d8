// Every rank gives a part to every other rank: what all sums in a fixed order are made of.
//
// Large parts for ranks on the same machine are not sent but offered: the receiver reads them from the
// sender's memory and says so, and only then does the sender go on (docs/decisions/008).
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/messages.h"

namespace lockstep::detail {

/// Not thread-safe, but for withdraw().
class Exchange {
 public:
  Exchange(Messages& messages, int tag);
  ~Exchange() { withdraw(); }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// `machines` of all ranks, as machine_of_this_process() gives them. Until then all goes through sockets.
  void know(std::span<const std::uint64_t> machines);
  /// Whether all ranks are on this machine, and `part` is large enough to be offered: the same on all ranks.
  bool offers_to_all(const at::Tensor& part) const;

  /// Tensor to[r] goes to rank r, whose tensor comes to from[r]. Either may be empty as a whole, or have
  /// undefined or empty tensors, where there is nothing to move: the other rank knows that, too. Blocking.
  void run(std::span<const at::Tensor> to, std::span<const at::Tensor> from);

  /// What is offered is not what it was any more: who reads it gets an error.
  void withdraw() { seal_ = 0; }

 private:
  using Works = std::vector<Messages::Work>;
  struct Offer {
    int peer;
    at::Tensor part;
    at::Tensor note;        // what the peer tells: a MemoryOffer, or whether it could read
    Messages::Work answer;  // that brings it
  };
  using Offers = std::vector<Offer>;
  struct Peer {
    bool can_read = false;  // our memory
    bool is_readable = false;
  };

  Offers receive(std::span<const at::Tensor> from, Works& works);
  Offers send(std::span<const at::Tensor> to, Works& works);
  at::Tensor note_of(const at::Tensor& part) const;
  void read(Offer& offer, Works& works);
  void await_reader(Offer& offer, Works& works);
  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }

  Messages& messages_;
  int tag_;
  std::vector<Peer> peers_;
  bool are_together_ = false;
  std::atomic<std::uint64_t> seal_;
};

}  // namespace lockstep::detail
