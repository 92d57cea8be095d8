#include "comm/transport.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "comm/broken_pipes.h"
#include "comm/peer_memory.h"

namespace lockstep::detail {
namespace {

constexpr int kExchangeTag = kLastTag + 1;

// Below, two more messages cost more than they save.
constexpr std::size_t kLeastRead = 256 << 10;  // bytes

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

bool can_be_read(const at::Tensor& part) { return part.is_cpu() && part.nbytes() >= kLeastRead; }

at::Tensor part_for(std::span<const at::Tensor> parts, int rank) {
  if (parts.empty()) return {};
  const auto& part = parts[static_cast<std::size_t>(rank)];
  return part.defined() && part.numel() > 0 ? part : at::Tensor();
}

}  // namespace

Transport::Transport(c10::intrusive_ptr<c10d::Backend> backend)
    : backend_(std::move(backend)),
      peers_(static_cast<std::size_t>(size())),
      seal_(std::uint64_t{std::random_device()()} << 32 | 1U) {}

Transport::~Transport() {
  seal_ = 0;
  // Its destructor would wait for what was abandoned: it stays to the end of the process.
  if (waits_.has_abandoned()) (void)backend_.release();
}

void Transport::abort() {
  seal_ = 0;
  backend_->abort();
  waits_.call_off();
}

void Transport::meet() {
  if (has_met_) return;
  auto own = at::full({1}, static_cast<std::int64_t>(machine_of_this_process()), at::kLong);
  auto all = at::empty({size()}, at::kLong);
  waits_.await_collective(backend_->_allgather_base(all, own));
  const auto* const machines = all.const_data_ptr<std::int64_t>();
  for (int i = 0; i < size(); ++i) {
    const bool is_near = machines[i] != 0 && machines[i] == machines[rank()];
    peer(i) = {.can_read = is_near, .is_readable = is_near};
  }
  has_met_ = true;
  are_together_ = std::ranges::all_of(peers_, &Peer::can_read);
}

void Transport::all_gather(at::Tensor output, at::Tensor input) {
  if (are_together_ && can_be_read(input)) {
    const auto rows = as_bytes(output).chunk(size());
    return exchange(std::vector<at::Tensor>(rows.size(), input), rows);
  }
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

void Transport::exchange(std::span<const at::Tensor> to, std::span<const at::Tensor> from) try {
  Works works;
  auto offered = receive_parts(from, works);
  auto offers = send_parts(to, works);
  const auto own = part_for(from, rank());
  if (own.defined()) as_bytes(own).copy_(as_bytes(part_for(to, rank())));
  for (auto& offer : offered) read(offer, works);
  for (auto& offer : offers) await_reader(offer, works);
  for (const auto& work : works) waits_.await_message(work);
} catch (...) {
  seal_ = 0;  // what was offered goes its own way now
  throw;
}

// Between two ranks messages come in the order in which they were sent, and are expected in that order:
// parts or offers of parts, then what became of offers, then parts of which the offer could not be taken.
Transport::Offers Transport::receive_parts(std::span<const at::Tensor> from, Works& works) {
  Offers offered;
  for (int offset = 1; offset < size(); ++offset) {
    const int src = (rank() + size() - offset) % size();
    const auto part = part_for(from, src);
    if (!part.defined()) continue;
    if (!can_be_read(part) || !peer(src).is_readable) {
      works.push_back(post_recv(part, src, kExchangeTag));
      continue;
    }
    const auto note = at::empty({sizeof(MemoryOffer)}, at::kByte);
    offered.push_back(
        {.peer = src, .part = part, .note = note, .answer = post_recv(note, src, kExchangeTag)});
  }
  return offered;
}

Transport::Offers Transport::send_parts(std::span<const at::Tensor> to, Works& works) {
  Offers offers;
  for (int offset = 1; offset < size(); ++offset) {
    const int dst = (rank() + offset) % size();
    const auto part = part_for(to, dst);
    if (!part.defined()) continue;
    count_sent(static_cast<std::int64_t>(part.nbytes()));
    if (!can_be_read(part) || !peer(dst).can_read) {
      works.push_back(post_send(part, dst, kExchangeTag));
      continue;
    }
    works.push_back(post_send(note_of(part), dst, kExchangeTag));
    offers.push_back({.peer = dst, .part = part, .note = at::empty({1}, at::kByte), .answer = {}});
  }
  for (auto& offer : offers) offer.answer = post_recv(offer.note, offer.peer, kExchangeTag);
  return offers;
}

at::Tensor Transport::note_of(const at::Tensor& part) const {
  const MemoryOffer offer{.process = ::getpid(),
                          .address = reinterpret_cast<std::uint64_t>(part.const_data_ptr()),  // NOLINT
                          .bytes = part.nbytes(),
                          .seal_address = reinterpret_cast<std::uint64_t>(&seal_),  // NOLINT
                          .seal = seal_};
  auto note = at::empty({sizeof offer}, at::kByte);
  std::memcpy(note.mutable_data_ptr(), &offer, sizeof offer);
  return note;
}

void Transport::read(Offer& offer, Works& works) {
  waits_.await_message(offer.answer);
  MemoryOffer where;
  std::memcpy(&where, offer.note.const_data_ptr(), sizeof where);
  const bool is_read = read_peer_memory(where, offer.part.mutable_data_ptr());
  works.push_back(post_send(at::full({1}, is_read ? 1 : 0, at::kByte), offer.peer, kExchangeTag));
  if (is_read) return;
  peer(offer.peer).is_readable = false;
  works.push_back(post_recv(offer.part, offer.peer, kExchangeTag));
}

void Transport::await_reader(Offer& offer, Works& works) {
  waits_.await_message(offer.answer);
  if (offer.note.const_data_ptr<std::uint8_t>()[0] == 1) return;
  peer(offer.peer).can_read = false;
  works.push_back(post_send(offer.part, offer.peer, kExchangeTag));
}

void Transport::send(const at::Tensor& tensor, int dst, int tag) {
  waits_.await_message(post_send(tensor, dst, tag));
  count_sent(static_cast<std::int64_t>(tensor.nbytes()));
}

void Transport::recv(const at::Tensor& tensor, int src, int tag) {
  waits_.await_message(post_recv(tensor, src, tag));
}

// Unlike collectives, messages are written to their sockets by the thread that posts them.
Transport::Work Transport::post_send(const at::Tensor& tensor, int dst, int tag) {
  const BrokenPipesAreErrors guard;
  std::vector<at::Tensor> tensors{as_bytes(tensor)};
  return backend_->send(tensors, dst, tag);
}

Transport::Work Transport::post_recv(const at::Tensor& tensor, int src, int tag) {
  const BrokenPipesAreErrors guard;
  std::vector<at::Tensor> tensors{as_bytes(tensor)};
  return backend_->recv(tensors, src, tag);
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
