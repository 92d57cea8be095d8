// Bytes, and many tensors as one, on top of the collectives on tensors.
#include <lockstep/comm/packed_collectives.h>

#include <memory>
#include <utility>

#include "comm/collectives/collective.h"
#include "comm/group/group.h"

namespace lockstep {
namespace {

using detail::bytes_in;

constexpr std::int64_t kPackBytes = 32 << 20;

// Tensors own their memory: where a collective fails, Gloo may still have it in hand when its caller is gone.
at::Tensor as_tensor(std::string bytes) {
  const auto owner = std::make_shared<std::string>(std::move(bytes));
  return at::from_blob(
      owner->data(), {static_cast<std::int64_t>(owner->size())}, [owner](void*) {}, at::kByte);
}

at::Tensor as_tensor(std::int64_t number) { return at::full({1}, number, at::kLong); }

at::Tensor room_for(std::int64_t bytes) { return at::empty({bytes}, at::kByte); }

std::string string_of(const at::Tensor& bytes) {
  return {reinterpret_cast<const char*>(bytes.const_data_ptr<std::uint8_t>()), bytes.nbytes()};
}

at::Tensor bytes_of(const at::Tensor& tensor) {
  return tensor.detach().resolve_conj().resolve_neg().contiguous().view({-1}).view(at::kByte);
}

// Ranks whose tensors have as many bytes, but other shapes or dtypes, must not take each other's.
std::int64_t layout_of(std::span<const at::Tensor> tensors) {
  std::uint64_t hash = tensors.size();
  const auto add = [&](std::int64_t value) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
  };
  for (const auto& tensor : tensors) {
    add(static_cast<std::int64_t>(tensor.scalar_type()));
    add(tensor.dim());
    for (const auto size : tensor.sizes()) add(size);
  }
  return static_cast<std::int64_t>(hash);
}

void broadcast_packed(const Communicator& comm, std::span<const at::Tensor> tensors, int root) {
  const auto pack = at::empty({bytes_in(tensors)}, at::kByte);
  std::int64_t begin = 0;
  const auto slot_of = [&](const at::Tensor& tensor) {
    const auto length = static_cast<std::int64_t>(tensor.nbytes());
    begin += length;
    return pack.slice(0, begin - length, begin);
  };
  if (comm.rank() == root) {
    for (const auto& tensor : tensors) slot_of(tensor).copy_(bytes_of(tensor));
  }
  const detail::Collective broadcast{
      .kind = detail::CollectiveKind::kBroadcast, .output = pack, .root = root, .layout = layout_of(tensors)};
  detail::check_collective(broadcast, detail::caller_in(*comm.group()));
  comm.group()->run(broadcast);
  if (comm.rank() == root) return;
  begin = 0;
  for (const auto& tensor : tensors) {
    // A slot may start anywhere; its clone is aligned for the dtype.
    tensor.copy_(slot_of(tensor).clone().view(tensor.scalar_type()).view(tensor.sizes()));
  }
}

// Collectives write behind autograd's back, as an in-place operator under NoGradGuard would.
detail::Collective all_reduce_of(const Communicator& comm, std::span<const at::Tensor> tensors, ReduceOp op) {
  detail::Collective collective{.kind = detail::CollectiveKind::kAllReduceList,
                                .outputs = {tensors.begin(), tensors.end()},
                                .op = op,
                                .layout = layout_of(tensors)};
  detail::check_collective(collective, detail::caller_in(*comm.group()));
  for (auto& tensor : collective.outputs) {
    if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
    if (tensor.requires_grad()) tensor = tensor.detach();
  }
  return collective;
}

Work started(const Communicator& comm, const detail::Collective& collective) {
  detail::check_collective(collective, detail::caller_in(*comm.group()));
  return Work(comm.group()->start(collective));
}

}  // namespace

std::string Communicator::broadcast_bytes(const std::string& bytes, int root) const {
  const auto length = as_tensor(static_cast<std::int64_t>(bytes.size()));
  broadcast(length, root);
  const auto all = rank() == root ? as_tensor(bytes) : room_for(length.item<std::int64_t>());
  if (all.numel() > 0) broadcast(all, root);
  return string_of(all);
}

std::vector<std::string> Communicator::all_gather_bytes(const std::string& bytes) const {
  const auto lengths = at::empty({size()}, at::kLong);
  all_gather(lengths, as_tensor(static_cast<std::int64_t>(bytes.size())));
  const auto longest = lengths.max().item<std::int64_t>();

  std::string padded = bytes;
  padded.resize(static_cast<std::size_t>(longest));
  const auto gathered = at::empty({size(), longest}, at::kByte);
  if (longest > 0) all_gather(gathered, as_tensor(std::move(padded)));

  std::vector<std::string> all;
  for (int rank = 0; rank < size(); ++rank) {
    all.push_back(string_of(gathered[rank].slice(0, 0, lengths[rank].item<std::int64_t>())));
  }
  return all;
}

std::vector<std::string> Communicator::gather_bytes(const std::string& bytes, int root) const {
  const bool is_root = rank() == root;
  const auto lengths = at::empty({size()}, at::kLong);
  gather(is_root ? lengths.split(1) : std::vector<at::Tensor>(),
         as_tensor(static_cast<std::int64_t>(bytes.size())), root);

  std::vector<at::Tensor> parts;
  for (int from = 0; is_root && from < size(); ++from) {
    parts.push_back(room_for(lengths[from].item<std::int64_t>()));
  }
  gather(parts, as_tensor(bytes), root);
  std::vector<std::string> all;
  for (const auto& part : parts) all.push_back(string_of(part));
  return all;
}

std::string Communicator::scatter_bytes(std::span<const std::string> bytes, int root) const {
  std::vector<at::Tensor> parts;
  std::vector<at::Tensor> lengths;
  for (const auto& part : bytes) {
    parts.push_back(as_tensor(part));
    lengths.push_back(as_tensor(static_cast<std::int64_t>(part.size())));
  }
  const auto length = as_tensor(0);
  scatter(length, lengths, root);
  const auto mine = room_for(length.item<std::int64_t>());
  scatter(mine, parts, root);
  return string_of(mine);
}

void Communicator::send_bytes(const std::string& bytes, int dst, int tag) const {
  send(as_tensor(static_cast<std::int64_t>(bytes.size())), dst, tag);
  send(as_tensor(bytes), dst, tag);
}

std::string Communicator::recv_bytes(int src, int tag) const {
  const auto length = as_tensor(0);
  recv(length, src, tag);
  const auto bytes = room_for(length.item<std::int64_t>());
  recv(bytes, src, tag);
  return string_of(bytes);
}

void broadcast_coalesced(const Communicator& comm, std::span<const at::Tensor> tensors, int root) {
  if (comm.size() == 1) return;
  const at::NoGradGuard no_grad;
  while (!tensors.empty()) {
    std::size_t count = 1;
    auto total = bytes_in(tensors.first(1));
    while (count < tensors.size() && total + bytes_in(tensors.subspan(count, 1)) <= kPackBytes) {
      total += bytes_in(tensors.subspan(count++, 1));
    }
    if (count == 1 && detail::is_supported(tensors.front().scalar_type())) {
      comm.broadcast(tensors.front(), root);
    } else {
      broadcast_packed(comm, tensors.first(count), root);
    }
    tensors = tensors.subspan(count);
  }
}

void all_reduce_coalesced(const Communicator& comm, std::span<const at::Tensor> tensors, ReduceOp op) {
  if (!tensors.empty()) comm.group()->run(all_reduce_of(comm, tensors, op));
}

Work all_reduce_coalesced_async(const Communicator& comm, std::span<const at::Tensor> tensors, ReduceOp op) {
  return tensors.empty() ? Work() : Work(comm.group()->start(all_reduce_of(comm, tensors, op)));
}

Work all_gather_flat_async(const Communicator& comm, const at::Tensor& output, const at::Tensor& input,
                           std::int64_t layout) {
  return started(
      comm, {.kind = detail::CollectiveKind::kAllGather, .output = output, .input = input, .layout = layout});
}

Work reduce_scatter_flat_async(const Communicator& comm, const at::Tensor& output, const at::Tensor& input,
                               ReduceOp op, std::int64_t layout) {
  return started(comm, {.kind = detail::CollectiveKind::kReduceScatter,
                        .output = output,
                        .input = input,
                        .op = op,
                        .layout = layout});
}

Work all_to_all_flat_async(const Communicator& comm, const at::Tensor& output, const at::Tensor& input,
                           std::int64_t layout) {
  return started(
      comm, {.kind = detail::CollectiveKind::kAllToAll, .output = output, .input = input, .layout = layout});
}

}  // namespace lockstep
