#include <lockstep/comm/communicator.h>

#include "comm/backends/single.h"
#include "comm/checks.h"
#include "comm/group.h"

namespace lockstep {
namespace {

using detail::Collective;
using detail::CollectiveKind;

// Collectives write into storage behind autograd's back, as an in-place operator under NoGradGuard would:
// leaves may require gradients, and tensors saved for backward must notice.
at::Tensor without_gradient(const at::Tensor& tensor, bool is_written) {
  if (!tensor.defined()) return tensor;
  if (is_written && !tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
  return tensor.detach();
}

Collective checked(const Communicator& comm, Collective collective) {
  detail::check_collective(collective, comm.size());
  collective.output = without_gradient(collective.output, true);
  collective.input = without_gradient(collective.input, false);
  return collective;
}

Collective all_reduce_of(const at::Tensor& tensor, ReduceOp op) {
  return {.kind = CollectiveKind::kAllReduce, .output = tensor, .op = op};
}

Collective broadcast_of(const at::Tensor& tensor, int root) {
  return {.kind = CollectiveKind::kBroadcast, .output = tensor, .root = root};
}

Collective all_gather_of(const at::Tensor& output, const at::Tensor& input) {
  return {.kind = CollectiveKind::kAllGather, .output = output, .input = input};
}

Collective reduce_scatter_of(const at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  return {.kind = CollectiveKind::kReduceScatter, .output = output, .input = input, .op = op};
}

}  // namespace

const char* detail::name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kBarrier:
      return "barrier";
  }
  return "collective";
}

void Work::wait() const {
  if (pending_) pending_->wait();
}

bool Work::is_completed() const { return !pending_ || pending_->is_completed(); }

Communicator::Communicator() : group_(detail::single_group()) {}
Communicator::Communicator(std::shared_ptr<detail::Group> group) : group_(std::move(group)) {}

int Communicator::rank() const { return group_->rank(); }
int Communicator::size() const { return group_->size(); }
std::string Communicator::backend() const { return group_->backend(); }
std::chrono::milliseconds Communicator::timeout() const { return group_->timeout(); }
std::uint64_t Communicator::bytes_sent() const { return group_->bytes_sent(); }
std::string Communicator::activity() const { return group_->activity(); }
void Communicator::close() const { group_->close(); }

void Communicator::all_reduce(const at::Tensor& tensor, ReduceOp op) const {
  group_->run(checked(*this, all_reduce_of(tensor, op)));
}

void Communicator::broadcast(const at::Tensor& tensor, int root) const {
  group_->run(checked(*this, broadcast_of(tensor, root)));
}

void Communicator::all_gather(const at::Tensor& output, const at::Tensor& input) const {
  group_->run(checked(*this, all_gather_of(output, input)));
}

void Communicator::reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) const {
  group_->run(checked(*this, reduce_scatter_of(output, input, op)));
}

void Communicator::barrier() const { group_->run({}); }

Work Communicator::all_reduce_async(const at::Tensor& tensor, ReduceOp op) const {
  return Work(group_->start(checked(*this, all_reduce_of(tensor, op))));
}

Work Communicator::broadcast_async(const at::Tensor& tensor, int root) const {
  return Work(group_->start(checked(*this, broadcast_of(tensor, root))));
}

Work Communicator::all_gather_async(const at::Tensor& output, const at::Tensor& input) const {
  return Work(group_->start(checked(*this, all_gather_of(output, input))));
}

Work Communicator::reduce_scatter_async(const at::Tensor& output, const at::Tensor& input,
                                        ReduceOp op) const {
  return Work(group_->start(checked(*this, reduce_scatter_of(output, input, op))));
}

Work Communicator::barrier_async() const { return Work(group_->start({})); }

}  // namespace lockstep
