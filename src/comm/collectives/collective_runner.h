// How one collective at a time is carried out: with the announcement, in peer memory, or by an algorithm's
// calls of the transport.
#pragma once

#include <lockstep/comm/init.h>

#include "comm/algorithms/ordered_reduction.h"
#include "comm/collectives/collective.h"
#include "comm/collectives/peer_memory_collectives.h"
#include "comm/transport/transport.h"

namespace lockstep::detail {

class CollectiveRunner {
 public:
  /// Borrows the transport.
  CollectiveRunner(Transport& transport, Reduction reduction, Peers peers)
      : transport_(transport),
        ordered_(transport),
        peer_memory_(transport.rank(), transport.seal()),
        reduction_(reduction),
        peers_(peers) {}

  /// Carries out `collective` through the transport. Blocking. Messages may be carried out beside each other
  /// and beside a collective.
  void run(const Collective& collective);

  /// Whether `collective` is small enough for run_inline(): the same on all ranks that call it.
  static bool is_inline(const Collective& collective);
  /// The same as run(), where the data travel with the announcement. Blocking.
  void run_inline(const Collective& collective, const Meetings& meetings);

  /// Whether run_in_peer_memory() is to carry out `collective`: the same on all ranks that call it.
  bool uses_peer_memory(const Collective& collective) const;
  /// The same as run(), by what ranks on one machine read in each other's memory. Blocking.
  void run_in_peer_memory(const Collective& collective, const Meetings& meetings);

  // The table's column `run`: through the transport, on contiguous tensors.
  void all_reduce(const Collective& collective);
  void reduce(const Collective& collective);
  void broadcast(const Collective& collective);
  void all_gather(const Collective& collective);
  void all_gather_list(const Collective& collective);
  void gather(const Collective& collective);
  void scatter(const Collective& collective);
  void reduce_scatter(const Collective& collective);
  void all_to_all(const Collective& collective);
  void all_to_all_list(const Collective& collective);
  void barrier(const Collective& collective);
  void send(const Collective& collective);
  void recv(const Collective& collective);

 private:
  void meet_once();
  bool is_ordered(const Collective& collective) const;

  Transport& transport_;
  OrderedReduction ordered_;
  PeerMemoryCollectives peer_memory_;
  Scratch inline_rows_;  // of all ranks
  Reduction reduction_;
  Peers peers_;
  bool have_met_ = false;
};

}  // namespace lockstep::detail
