// How one collective at a time is carried out: with the announcement, through the segments that ranks of one
// machine share, or by an algorithm's calls of the transport.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

#include <c10/util/FunctionRef.h>
#include <lockstep/comm/init.h>

#include "comm/algorithms/ordered_reduction.h"
#include "comm/collectives/collective.h"
#include "comm/collectives/segment_collectives.h"
#include "comm/collectives/two_level_collectives.h"
#include "comm/transport/transport.h"

namespace lockstep::detail {

class CollectiveRunner {
 public:
  /// Borrows the transport.
  CollectiveRunner(Transport& transport, Reduction reduction, Peers peers)
      : transport_(transport), ordered_(transport), reduction_(reduction), peers_(peers) {}

  /// Whether `collective`, of a list, is rather run as one of all its tensors packed one behind the other:
  /// the same on all ranks that call it.
  bool is_packed(const Collective& collective) const;
  /// Runs it so: `run` carries out the packed one. Blocking. @throws what `run` does
  void run_packed(const Collective& collective, c10::function_ref<void(const Collective& packed)> run);

  /// Carries out `collective` through the transport. Blocking. Messages may be carried out beside each other
  /// and beside a collective.
  void run(const Collective& collective);

  /// Whether `collective` is small enough for run_inline(): the same on all ranks that call it.
  static bool is_inline(const Collective& collective);
  /// The same as run(), where the data travel with the announcement. Blocking.
  /// `meet` gives `bytes` to the other members, and calls `take` with what each of them gave.
  using Take = std::function<void(int member, std::string_view bytes)>;
  using Meet = c10::function_ref<void(std::string_view bytes, const Take& take)>;
  void run_inline(const Collective& collective, Meet meet);

  /// From now on collectives pass through `segments` where they can: those of all members, or those of this
  /// host. Borrows them.
  void use(GroupSegments& segments);
  /// Whether run_in_segments() is to carry out `collective`: the same on all ranks that call it.
  bool uses_segments(const Collective& collective) const;
  /// The same as run(). Blocking. @throws what `await_late` does
  void run_in_segments(const Collective& collective, SegmentCollectives::AwaitLate await_late);

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

  /// Memory for small reductions, aligned for every dtype.
  using InlineRows = std::vector<std::max_align_t>;

 private:
  bool is_ordered(const Collective& collective) const;

  Transport& transport_;
  OrderedReduction ordered_;
  SegmentCollectives in_segments_;     // where they are of all members
  TwoLevelCollectives on_two_levels_;  // where not
  InlineRows inline_rows_;             // of all ranks
  Scratch packed_;                     // the tensors of a list, one behind the other
  Reduction reduction_;
  Peers peers_;
};

}  // namespace lockstep::detail
