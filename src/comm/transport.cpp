#include "comm/transport.h"

#include <numeric>

namespace lockstep::detail {
namespace {

at::Tensor as_bytes(const at::Tensor& tensor) { return tensor.view({-1}).view(at::kByte); }

c10d::ReduceOp native_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return c10d::ReduceOp::SUM;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kProduct:
      return c10d::ReduceOp::PRODUCT;
  }
  return c10d::ReduceOp::SUM;
}

}  // namespace

void Transport::all_gather(at::Tensor output, at::Tensor input) {
  auto to = as_bytes(output);
  auto from = as_bytes(input);
  backend_->_allgather_base(to, from)->wait();
  count((size() - 1) * from.numel());
}

void Transport::all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> output_bytes,
                           std::vector<std::int64_t> input_bytes) {
  auto to = as_bytes(output);
  auto from = as_bytes(input);
  const auto kept = input_bytes.at(static_cast<std::size_t>(rank()));
  backend_->alltoall_base(to, from, output_bytes, input_bytes)->wait();  // takes both vectors away
  count(from.numel() - kept);
}

void Transport::broadcast(at::Tensor tensor, int root) {
  std::vector<at::Tensor> tensors{as_bytes(tensor)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  backend_->broadcast(tensors, options)->wait();
  if (rank() == root) count((size() - 1) * tensors[0].numel());
}

void Transport::barrier() { backend_->barrier()->wait(); }

void Transport::reduce_natively(at::Tensor tensor, ReduceOp op) {
  std::vector<at::Tensor> tensors{tensor};
  c10d::AllreduceOptions options;
  options.reduceOp = native_op(op);
  backend_->allreduce(tensors, options)->wait();
  if (op == ReduceOp::kAvg) tensor.div_(size());
  count(2 * static_cast<std::int64_t>(tensor.nbytes()) * (size() - 1) / size());  // a ring's share
}

}  // namespace lockstep::detail
