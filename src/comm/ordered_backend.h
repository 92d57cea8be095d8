// A c10d backend that wraps another one: c10d's Reducer and our own Communicator issue their
// collectives here, so that they share one order, one way of summing and one translation of errors.
#pragma once

#include <memory>

#include <lockstep/comm/reduce_op.h>

#include "comm/group.h"
#include "comm/ordered.h"
#include "comm/progress.h"
#include "comm/transport.h"

namespace lockstep::detail {

class OrderedBackend final : public c10d::Backend {
 public:
  OrderedBackend(c10::intrusive_ptr<c10d::Backend> inner, Reduction reduction);
  /// As close().
  ~OrderedBackend() override;

  // What Communicator calls.
  void run(const Collective& collective);
  std::shared_ptr<Pending> start(const Collective& collective);
  std::uint64_t bytes_sent() const { return transport_.bytes_sent(); }
  std::string activity() const;
  /// Whether a collective failed; the group is of no further use then.
  bool has_failed() const { return has_failed_; }
  /// Returns when all collectives issued so far are done.
  void drain();
  /// Fails what is not done, the collective under way included, and all later ones. Returns when no
  /// thread is in here any more.
  void close();

  // What c10d calls; all return at once.
  const std::string getBackendName() const override { return "lockstep"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override;

 private:
  c10::intrusive_ptr<c10d::Work> start_for_c10d(const Collective& collective);
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
