// Small objects and many small tensors, on top of the collectives on tensors.
#include <algorithm>
#include <cstring>

#include <lockstep/comm/coalesced.h>
#include <lockstep/comm/communicator.h>

namespace lockstep {
namespace {

constexpr std::int64_t kPackBytes = 32 << 20;

at::Tensor as_tensor(std::string& bytes) {
  return at::from_blob(bytes.data(), {static_cast<std::int64_t>(bytes.size())}, at::kByte);
}

at::Tensor as_tensor(std::int64_t& number) { return at::from_blob(&number, {1}, at::kLong); }

at::Tensor bytes_of(const at::Tensor& tensor) {
  return tensor.detach().contiguous().view({-1}).view(at::kByte);
}

std::int64_t bytes_in(std::span<const at::Tensor> tensors) {
  std::int64_t total = 0;
  for (const auto& tensor : tensors) total += static_cast<std::int64_t>(tensor.nbytes());
  return total;
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
  comm.broadcast(pack, root);
  if (comm.rank() == root) return;
  begin = 0;
  for (const auto& tensor : tensors) {
    // A slot may start anywhere; its clone is aligned for the dtype.
    tensor.copy_(slot_of(tensor).clone().view(tensor.scalar_type()).view(tensor.sizes()));
  }
}

}  // namespace

std::string Communicator::broadcast_bytes(const std::string& bytes, int root) const {
  auto length = static_cast<std::int64_t>(bytes.size());
  broadcast(as_tensor(length), root);
  std::string all = bytes;
  all.resize(static_cast<std::size_t>(length));
  if (length > 0) broadcast(as_tensor(all), root);
  return all;
}

std::vector<std::string> Communicator::all_gather_bytes(const std::string& bytes) const {
  auto length = static_cast<std::int64_t>(bytes.size());
  const auto lengths = at::empty({size()}, at::kLong);
  all_gather(lengths, as_tensor(length));
  const auto longest = lengths.max().item<std::int64_t>();

  std::string padded = bytes;
  padded.resize(static_cast<std::size_t>(longest));
  const auto gathered = at::empty({size(), longest}, at::kByte);
  if (longest > 0) all_gather(gathered, as_tensor(padded));

  std::vector<std::string> all;
  for (int rank = 0; rank < size(); ++rank) {
    const auto* begin =
        reinterpret_cast<const char*>(gathered.const_data_ptr<std::uint8_t>()) + rank * longest;
    all.emplace_back(begin, lengths[rank].item<std::int64_t>());
  }
  return all;
}

std::vector<std::string> Communicator::gather_bytes(const std::string& bytes, int root) const {
  auto length = static_cast<std::int64_t>(bytes.size());
  const auto lengths = at::empty({size()}, at::kLong);
  const bool is_root = rank() == root;
  gather(is_root ? lengths.split(1) : std::vector<at::Tensor>(), as_tensor(length), root);

  std::vector<std::string> all(is_root ? static_cast<std::size_t>(size()) : 0);
  std::vector<at::Tensor> outputs;
  for (std::size_t from = 0; from < all.size(); ++from) {
    all[from].resize(static_cast<std::size_t>(lengths.const_data_ptr<std::int64_t>()[from]));
    outputs.push_back(as_tensor(all[from]));
  }
  std::string mine = bytes;
  gather(outputs, as_tensor(mine), root);
  return all;
}

std::string Communicator::scatter_bytes(std::span<const std::string> bytes, int root) const {
  std::vector<std::string> copies(bytes.begin(), bytes.end());
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> lengths;
  for (auto& copy : copies) {
    inputs.push_back(as_tensor(copy));
    lengths.push_back(at::scalar_tensor(static_cast<std::int64_t>(copy.size()), at::kLong));
  }
  std::int64_t length = 0;
  scatter(as_tensor(length), lengths, root);
  std::string mine(static_cast<std::size_t>(length), '\0');
  scatter(as_tensor(mine), inputs, root);
  return mine;
}

void Communicator::send_bytes(const std::string& bytes, int dst, int tag) const {
  auto length = static_cast<std::int64_t>(bytes.size());
  std::string copy = bytes;
  send(as_tensor(length), dst, tag);
  send(as_tensor(copy), dst, tag);
}

std::string Communicator::recv_bytes(int src, int tag) const {
  std::int64_t length = 0;
  recv(as_tensor(length), src, tag);
  std::string bytes(static_cast<std::size_t>(length), '\0');
  recv(as_tensor(bytes), src, tag);
  return bytes;
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
    if (count == 1) {
      comm.broadcast(tensors.front(), root);
    } else {
      broadcast_packed(comm, tensors.first(count), root);
    }
    tensors = tensors.subspan(count);
  }
}

}  // namespace lockstep
