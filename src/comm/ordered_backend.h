// Runs collectives on a c10d backend: in the order of their issue, with sums in a fixed order, and with
// the errors of lockstep. Our own Communicator and, through C10dAdapter, c10d's Reducer issue theirs here.
#pragma once

#include <memory>

#include <lockstep/comm/reduce_op.h>

#include "comm/group.h"
#include "comm/ordered.h"
#include "comm/progress.h"
#include "comm/transport.h"

namespace lockstep::detail {

class OrderedBackend {
 public:
  OrderedBackend(c10::intrusive_ptr<c10d::Backend> inner, Reduction reduction);
  /// As close().
  ~OrderedBackend();
  OrderedBackend(const OrderedBackend&) = delete;
  OrderedBackend& operator=(const OrderedBackend&) = delete;

  int rank() const { return transport_.rank(); }
  int size() const { return transport_.size(); }

  /// Returns when `collective` is done; throws what it failed with.
  void run(const Collective& collective);
  /// Returns at once. `on_done` is called once, from any thread, with what the collective failed with.
  using OnDone = std::function<void(std::exception_ptr)>;
  std::shared_ptr<Pending> start(const Collective& collective, OnDone on_done = {});
  std::uint64_t bytes_sent() const { return transport_.bytes_sent(); }
  std::string activity() const;
  /// Whether a collective failed; the group is of no further use then.
  bool has_failed() const { return has_failed_; }
  /// Returns when all collectives issued so far are done.
  void drain();
  /// Fails what is not done, the collective under way included, and all later ones. Returns when no
  /// thread is in here any more.
  void close();

 private:
  void execute(const Collective& collective);
  void perform(const Collective& collective);
  void reduce(const at::Tensor& tensor, ReduceOp op);
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op);

  Transport transport_;
  OrderedReducer ordered_;
  Reduction reduction_;
  std::atomic<const char*> activity_{nullptr};
  std::atomic<std::uint64_t> sequence_{0};
  std::atomic<bool> has_failed_{false};
  // Shared with the Works that were given out; the destructor stops it while the above still stands.
  std::shared_ptr<ProgressQueue> queue_;
};

}  // namespace lockstep::detail
