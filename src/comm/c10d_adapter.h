// An OrderedBackend as c10d sees it: what the Reducer and users' c10d code call. All calls return at once.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/c10d.h"
#include "comm/ordered_backend.h"

namespace lockstep::detail {

class C10dAdapter final : public c10d::Backend {
 public:
  explicit C10dAdapter(std::shared_ptr<OrderedBackend> backend);

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
  c10::intrusive_ptr<c10d::Work> start(const Collective& collective);

  std::shared_ptr<OrderedBackend> backend_;
};

}  // namespace lockstep::detail
