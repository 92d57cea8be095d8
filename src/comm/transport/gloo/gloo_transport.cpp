#include "comm/transport/gloo/gloo_transport.h"

#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>

#include "comm/errors.h"

namespace lockstep::detail {
namespace {

constexpr auto kSlice = std::chrono::milliseconds(200);

// False when the time passed. c10d reports that as an error of its own, and the work may have ended since.
bool wait_for(c10d::Work& work, std::chrono::milliseconds time) {
  try {
    work.wait(time);
  } catch (const std::exception&) {
    if (!work.isCompleted()) return false;
    work.wait();
  }
  return true;
}

// A contiguous tensor's memory.
at::Tensor as_bytes(const at::Tensor& tensor) { return tensor.view({-1}).view(at::kByte); }

at::Tensor part_for(std::span<const at::Tensor> parts, int rank) {
  if (parts.empty()) return {};
  const auto& part = parts[static_cast<std::size_t>(rank)];
  return part.defined() && part.numel() > 0 ? part : at::Tensor();
}

constexpr int kExchangeTag = kLastTag + 1;

// Gloo has no averages: their sums are divided afterwards.
c10d::ReduceOp gloo_op(ReduceOp op) { return native_op(op == ReduceOp::kAvg ? ReduceOp::kSum : op); }

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

void Interruptible::await_collective(const Work& work) {
  while (!is_aborted_) {
    if (wait_for(*work, kSlice)) return;
  }
  if (wait_for(*work, kSlice)) return;
  has_abandoned_ = true;
  throw std::runtime_error("Socket closed: the collective was aborted");
}

void Interruptible::await_message(const Work& work) {
  {
    const std::lock_guard lock(mutex_);
    messages_.push_back(work);
  }
  const auto forget = [&] {
    const std::lock_guard lock(mutex_);
    std::erase(messages_, work);
  };
  if (is_aborted_) work->abort();
  try {
    const bool is_complete = work->wait();
    if (!is_complete) throw std::runtime_error("Socket closed: the message was aborted");
  } catch (...) {
    forget();
    throw;
  }
  forget();
}

void Interruptible::abort() {
  is_aborted_ = true;
  const std::lock_guard lock(mutex_);
  for (const auto& work : messages_) work->abort();
}

// Unlike collectives, messages are written to their sockets by the thread that posts them.
Messages::Work Messages::send(const at::Tensor& tensor, int dst, int tag) {
  const SigpipeBlock guard;
  std::vector<at::Tensor> tensors{as_bytes(tensor)};
  return backend_.send(tensors, dst, tag);
}

Messages::Work Messages::recv(const at::Tensor& tensor, int src, int tag) {
  const SigpipeBlock guard;
  std::vector<at::Tensor> tensors{as_bytes(tensor)};
  return backend_.recv(tensors, src, tag);
}

GlooTransport::GlooTransport(c10::intrusive_ptr<c10d::Backend> backend)
    : Transport(backend->getRank(), backend->getSize()),
      backend_(std::move(backend)),
      messages_(*backend_, waits_) {}

GlooTransport::~GlooTransport() {
  // Its destructor would wait for what was abandoned: it stays to the end of the process.
  if (waits_.has_abandoned()) (void)backend_.release();
}

void GlooTransport::abort() {
  backend_->abort();
  waits_.abort();
}

void GlooTransport::all_gather(at::Tensor output, at::Tensor input) {
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
  std::vector<Messages::Work> works;
  for (int offset = 1; offset < size(); ++offset) {
    const int src = (rank() + size() - offset) % size();
    if (const auto part = part_for(from, src); part.defined())
      works.push_back(messages_.recv(part, src, kExchangeTag));
  }
  for (int offset = 1; offset < size(); ++offset) {
    const int dst = (rank() + offset) % size();
    const auto part = part_for(to, dst);
    if (!part.defined()) continue;
    works.push_back(messages_.send(part, dst, kExchangeTag));
    count_sent(static_cast<std::int64_t>(part.nbytes()));
  }
  const auto own = part_for(from, rank());
  if (own.defined()) as_bytes(own).copy_(as_bytes(part_for(to, rank())));
  for (const auto& work : works) messages_.await(work);
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
  options.reduceOp = gloo_op(op);
  waits_.await_collective(backend_->allreduce(tensors, options));
  if (op == ReduceOp::kAvg) tensor.div_(size());
  count_sent(2 * static_cast<std::int64_t>(tensor.nbytes()) * (size() - 1) / size());  // a ring's share
}

void GlooTransport::reduce(at::Tensor tensor, int root, ReduceOp op) {
  std::vector<at::Tensor> tensors{as_real(tensor)};
  c10d::ReduceOptions options;
  options.reduceOp = gloo_op(op);
  options.rootRank = root;
  waits_.await_collective(backend_->reduce(tensors, options));
  if (op == ReduceOp::kAvg) tensor.div_(size());
  if (rank() != root) count_sent(static_cast<std::int64_t>(tensor.nbytes()));
}

}  // namespace lockstep::detail
