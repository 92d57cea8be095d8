// An OrderedBackend as c10d sees it: what the Reducer and users' c10d code call. All calls return at once.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "comm/c10d.h"
#include "comm/group/connected_group.h"

namespace lockstep::detail {

class C10dAdapter final : public c10d::Backend {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using Lists = std::vector<std::vector<at::Tensor>>;
  using Splits = std::vector<std::int64_t>;

  /// `timeout` is the group's.
  C10dAdapter(std::shared_ptr<OrderedBackend> backend, std::chrono::milliseconds timeout);

  const std::string getBackendName() const override { return "lockstep"; }

  Work allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Work allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  Work reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  Work broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  Work allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Work _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  Work allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const c10d::AllgatherOptions& options) override;
  Work gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  Work scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& options) override;
  Work reduce_scatter(Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& options) override;
  Work _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                            const c10d::ReduceScatterOptions& options) override;
  Work reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const c10d::ReduceScatterOptions& options) override;
  Work alltoall_base(at::Tensor& output, at::Tensor& input, Splits& output_splits, Splits& input_splits,
                     const c10d::AllToAllOptions& options) override;
  Work alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  Work send(Tensors& tensors, int dst, int tag) override;
  Work recv(Tensors& tensors, int src, int tag) override;
  Work barrier(const c10d::BarrierOptions& options) override;
  /// As Communicator::monitored_barrier: it always waits for, and names, all ranks. Blocks.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

 private:
  Collective checked(Collective collective) const;
  Work start(Collective collective);
  Work start_all(std::vector<Collective> collectives);

  std::shared_ptr<OrderedBackend> backend_;
  std::chrono::milliseconds timeout_;
};

}  // namespace lockstep::detail
