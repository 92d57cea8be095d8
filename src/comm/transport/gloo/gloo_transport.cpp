#include "comm/transport/gloo/gloo_transport.h"

#include <cstring>

namespace lockstep::detail {
namespace {

constexpr int kExchangeTag = kLastTag + 1;

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

bool can_reduce(at::ScalarType dtype, ReduceOp op) {
  if (dtype == at::kShort || dtype == at::kBool) return false;
  if (op == ReduceOp::kSum || op == ReduceOp::kAvg) return true;
  const bool is_bitwise = op == ReduceOp::kBitAnd || op == ReduceOp::kBitOr || op == ReduceOp::kBitXor;
  return is_bitwise ? at::isIntegralType(dtype, false) : !c10::isComplexType(dtype);
}

// Sums of complex numbers are sums of their parts.
at::Tensor as_real(const at::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor) : tensor;
}

}  // namespace

GlooTransport::GlooTransport(c10::intrusive_ptr<c10d::Backend> backend)
    : Transport(backend->getRank(), backend->getSize()),
      backend_(std::move(backend)),
      messages_(*backend_, waits_),
      exchange_(messages_, kExchangeTag, seal()) {}

GlooTransport::~GlooTransport() {
  seal().revoke();
  // Its destructor would wait for what was abandoned: it stays to the end of the process.
  if (waits_.has_abandoned()) (void)backend_.release();
}

void GlooTransport::abort() {
  seal().revoke();
  backend_->abort();
  waits_.abort();
}

MemoryAccess GlooTransport::meet() {
  // Gloo may have the tensors in hand longer than this waits: they own their memory.
  const auto gather = [this]<class T>(const std::vector<T>& own) {
    std::vector<T> all(own.size() * static_cast<std::size_t>(size()));
    auto from = at::empty({static_cast<std::int64_t>(own.size() * sizeof(T))}, at::kByte);
    auto to = at::empty({from.numel() * size()}, at::kByte);
    const auto gathered = to;
    std::memcpy(from.mutable_data_ptr(), own.data(), from.nbytes());
    waits_.await_collective(backend_->_allgather_base(to, from));
    std::memcpy(all.data(), gathered.const_data_ptr(), gathered.nbytes());
    return all;
  };
  MemoryAccess access{.owners = gather(std::vector{seal().owner()}), .can_read_all = {}};
  access.can_read_all = gather(can_read_each(access.owners, static_cast<std::size_t>(rank())));
  exchange_.know(access);
  return access;
}

void GlooTransport::all_gather(at::Tensor output, at::Tensor input) {
  if (exchange_.offers_to_all(input)) {
    const auto rows = as_bytes(output).chunk(size());
    return exchange(std::vector<at::Tensor>(rows.size(), input), rows);
  }
  auto to = as_bytes(output);
  auto from = as_bytes(input);
  waits_.await_collective(backend_->_allgather_base(to, from));
  count_sent((size() - 1) * from.numel());
}

void GlooTransport::all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> output_bytes,
                               std::vector<std::int64_t> input_bytes) {
  auto to = as_bytes(output);
  auto from = as_bytes(input);
  const auto kept = input_bytes.at(static_cast<std::size_t>(rank()));
  waits_.await_collective(backend_->alltoall_base(to, from, output_bytes, input_bytes));  // takes both away
  count_sent(from.numel() - kept);
}

void GlooTransport::broadcast(at::Tensor tensor, int root) {
  std::vector<at::Tensor> tensors{as_bytes(tensor)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  waits_.await_collective(backend_->broadcast(tensors, options));
  if (rank() == root) count_sent((size() - 1) * tensors[0].numel());
}

void GlooTransport::barrier() { waits_.await_collective(backend_->barrier()); }

void GlooTransport::exchange(std::span<const at::Tensor> to, std::span<const at::Tensor> from) {
  exchange_.run(to, from);
  for (std::size_t peer = 0; peer < to.size(); ++peer) {
    const bool is_sent = to[peer].defined() && peer != static_cast<std::size_t>(rank());
    if (is_sent) count_sent(static_cast<std::int64_t>(to[peer].nbytes()));
  }
}

void GlooTransport::send(const at::Tensor& tensor, int dst, int tag) {
  messages_.await(messages_.send(tensor, dst, tag));
  count_sent(static_cast<std::int64_t>(tensor.nbytes()));
}

void GlooTransport::recv(const at::Tensor& tensor, int src, int tag) {
  messages_.await(messages_.recv(tensor, src, tag));
}

NativeReduction GlooTransport::native_reduction(at::ScalarType dtype, ReduceOp op) const {
  if (!can_reduce(dtype, op)) return NativeReduction::kNone;
  const bool compares = op == ReduceOp::kMin || op == ReduceOp::kMax;
  const bool may_lose_nan = compares && c10::isFloatingType(dtype);
  const bool is_exact = !may_lose_nan && !c10::isReducedFloatingType(dtype);
  return is_exact ? NativeReduction::kExact : NativeReduction::kImprecise;
}

void GlooTransport::all_reduce(at::Tensor tensor, ReduceOp op) {
  std::vector<at::Tensor> tensors{as_real(tensor)};
  c10d::AllreduceOptions options;
  options.reduceOp = native_op(op);
  waits_.await_collective(backend_->allreduce(tensors, options));
  if (op == ReduceOp::kAvg) tensor.div_(size());
  count_sent(2 * static_cast<std::int64_t>(tensor.nbytes()) * (size() - 1) / size());  // a ring's share
}

void GlooTransport::reduce(at::Tensor tensor, int root, ReduceOp op) {
  std::vector<at::Tensor> tensors{as_real(tensor)};
  c10d::ReduceOptions options;
  options.reduceOp = native_op(op);
  options.rootRank = root;
  waits_.await_collective(backend_->reduce(tensors, options));
  if (op == ReduceOp::kAvg) tensor.div_(size());
  if (rank() != root) count_sent(static_cast<std::int64_t>(tensor.nbytes()));
}

}  // namespace lockstep::detail
