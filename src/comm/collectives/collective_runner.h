// Carries out one collective at a time: what each kind is made of.
#pragma once

#include <lockstep/comm/init.h>

#include "comm/algorithms/ordered_reduction.h"
#include "comm/collectives/collective.h"
#include "comm/group/monitored_barrier.h"
#include "comm/transport/gloo/gloo_transport.h"

namespace lockstep::detail {

class Executor {
 public:
  Executor(Transport& transport, MonitoredBarrier barrier, Reduction reduction, Peers peers)
      : transport_(transport),
        ordered_(transport),
        barrier_(std::move(barrier)),
        reduction_(reduction),
        peers_(peers) {}

  /// Blocking. Messages (kSend, kRecv) may be carried out beside each other and beside a collective.
  void perform(const Collective& collective);

  /// Whether perform_near() is to carry out `collective`: the same on all ranks that call it.
  bool is_near(const Collective& collective) const;
  /// The same as perform(), by what ranks on one machine read in each other's memory.
  void perform_near(const Collective& collective, const Meetings& meetings);

 private:
  bool can_meet(const Collective& collective) const;
  void perform_dense(const Collective& collective);
  bool is_ordered(const at::Tensor& tensor, ReduceOp op) const;
  void all_reduce(const at::Tensor& tensor, ReduceOp op);
  void reduce(const at::Tensor& tensor, int root, ReduceOp op);
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op);
  void all_gather_list(const Collective& collective);
  void gather(const Collective& collective);
  void scatter(const Collective& collective);
  void all_to_all(const Collective& collective);

  Transport& transport_;
  OrderedReducer ordered_;
  MonitoredBarrier barrier_;
  Reduction reduction_;
  Peers peers_;
};

}  // namespace lockstep::detail
