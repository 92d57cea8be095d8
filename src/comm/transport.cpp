#include "comm/transport.h"

#include "comm/broken_pipes.h"

namespace lockstep::detail {
namespace {

constexpr int kExchangeTag = kLastTag + 1;

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
    case ReduceOp::kBitAnd:
      return c10d::ReduceOp::BAND;
    case ReduceOp::kBitOr:
      return c10d::ReduceOp::BOR;
    case ReduceOp::kBitXor:
      return c10d::ReduceOp::BXOR;
  }
  return c10d::ReduceOp::SUM;
}

// Sums of complex numbers are sums of their parts.
at::Tensor as_real(const at::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor) : tensor;
}

at::Tensor part_for(std::span<const at::Tensor> parts, int rank) {
  if (parts.empty()) return {};
  const auto& part = parts[static_cast<std::size_t>(rank)];
  return part.defined() && part.numel() > 0 ? part : at::Tensor();
}

}  // namespace

Transport::~Transport() {
  // Its destructor would wait for what was abandoned: it stays to the end of the process.
  if (waits_.has_abandoned()) (void)backend_.release();
}

void Transport::abort() {
  backend_->abort();
  waits_.call_off();
}

void Transport::all_gather(at::Tensor output, at::Tensor input) {
  auto to = as_bytes(output);
  auto from = as_bytes(input);
  waits_.await_collective(backend_->_allgather_base(to, from));
  count_sent((size() - 1) * from.numel());
}

void Transport::all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> output_bytes,
                           std::vector<std::int64_t> input_bytes) {
  auto to = as_bytes(output);
  auto from = as_bytes(input);
  const auto kept = input_bytes.at(static_cast<std::size_t>(rank()));
  waits_.await_collective(backend_->alltoall_base(to, from, output_bytes, input_bytes));  // takes both away
  count_sent(from.numel() - kept);
}

void Transport::broadcast(at::Tensor tensor, int root) {
  std::vector<at::Tensor> tensors{as_bytes(tensor)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  waits_.await_collective(backend_->broadcast(tensors, options));
  if (rank() == root) count_sent((size() - 1) * tensors[0].numel());
}

void Transport::barrier() { waits_.await_collective(backend_->barrier()); }

void Transport::exchange(std::span<const at::Tensor> to, std::span<const at::Tensor> from) {
  Works works;
  for (int offset = 1; offset < size(); ++offset) {
    const int dst = (rank() + offset) % size();
    const int src = (rank() + size() - offset) % size();
    if (const auto part = part_for(from, src); part.defined()) post_recv(works, part, src, kExchangeTag);
    if (const auto part = part_for(to, dst); part.defined()) post_send(works, part, dst, kExchangeTag);
  }
  const auto own = part_for(from, rank());
  if (own.defined()) as_bytes(own).copy_(as_bytes(part_for(to, rank())));
  for (const auto& work : works) waits_.await_message(work);
}

void Transport::send(const at::Tensor& tensor, int dst, int tag) {
  Works works;
  post_send(works, tensor, dst, tag);
  waits_.await_message(works.front());
}

void Transport::recv(const at::Tensor& tensor, int src, int tag) {
  Works works;
  post_recv(works, tensor, src, tag);
  waits_.await_message(works.front());
}

// Unlike collectives, messages are written to their sockets by the thread that posts them.
void Transport::post_send(Works& works, const at::Tensor& tensor, int dst, int tag) {
  const BrokenPipesAreErrors guard;
  std::vector<at::Tensor> tensors{as_bytes(tensor)};
  works.push_back(backend_->send(tensors, dst, tag));
  count_sent(tensors[0].numel());
}

void Transport::post_recv(Works& works, const at::Tensor& tensor, int src, int tag) {
  const BrokenPipesAreErrors guard;
  std::vector<at::Tensor> tensors{as_bytes(tensor)};
  works.push_back(backend_->recv(tensors, src, tag));
}

bool can_reduce_natively(at::ScalarType dtype, ReduceOp op) {
  if (dtype == at::kShort || dtype == at::kBool) return false;
  if (op == ReduceOp::kSum || op == ReduceOp::kAvg) return true;
  const bool is_bitwise = op == ReduceOp::kBitAnd || op == ReduceOp::kBitOr || op == ReduceOp::kBitXor;
  return is_bitwise ? at::isIntegralType(dtype, false) : !c10::isComplexType(dtype);
}

bool reduces_as_promised(at::ScalarType dtype, ReduceOp op) {
  const bool compares = op == ReduceOp::kMin || op == ReduceOp::kMax;
  const bool may_lose_nan = compares && c10::isFloatingType(dtype);
  return can_reduce_natively(dtype, op) && !may_lose_nan && !c10::isReducedFloatingType(dtype);
}

void Transport::all_reduce_natively(at::Tensor tensor, ReduceOp op) {
  std::vector<at::Tensor> tensors{as_real(tensor)};
  c10d::AllreduceOptions options;
  options.reduceOp = native_op(op);
  waits_.await_collective(backend_->allreduce(tensors, options));
  if (op == ReduceOp::kAvg) tensor.div_(size());
  count_sent(2 * static_cast<std::int64_t>(tensor.nbytes()) * (size() - 1) / size());  // a ring's share
}

void Transport::reduce_natively(at::Tensor tensor, int root, ReduceOp op) {
  std::vector<at::Tensor> tensors{as_real(tensor)};
  c10d::ReduceOptions options;
  options.reduceOp = native_op(op);
  options.rootRank = root;
  waits_.await_collective(backend_->reduce(tensors, options));
  if (op == ReduceOp::kAvg) tensor.div_(size());
  if (rank() != root) count_sent(static_cast<std::int64_t>(tensor.nbytes()));
}

}  // namespace lockstep::detail
