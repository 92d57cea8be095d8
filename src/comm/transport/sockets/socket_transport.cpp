#include "comm/transport/sockets/socket_transport.h"

#include <algorithm>
#include <cstring>

namespace lockstep::detail {
namespace {

using Incoming = std::span<std::byte>;
using Outgoing = std::span<const std::byte>;

constexpr std::uint32_t kMessages = 1U << 31;       // streams of messages: this and their tag
constexpr std::size_t kDirectBroadcast = 64 << 10;  // bytes; more goes in parts, which all pass on

// A contiguous tensor's memory.
Incoming incoming(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0) return {};
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}
Outgoing outgoing(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0) return {};
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

std::vector<Outgoing> parts_of(Outgoing whole, const std::vector<std::int64_t>& bytes) {
  std::vector<Outgoing> parts;
  for (std::size_t begin = 0; const auto each : bytes) {
    parts.push_back(whole.subspan(begin, static_cast<std::size_t>(each)));
    begin += static_cast<std::size_t>(each);
  }
  return parts;
}

std::vector<Incoming> places_of(Incoming whole, const std::vector<std::int64_t>& bytes) {
  std::vector<Incoming> places;
  for (std::size_t begin = 0; const auto each : bytes) {
    places.push_back(whole.subspan(begin, static_cast<std::size_t>(each)));
    begin += static_cast<std::size_t>(each);
  }
  return places;
}

}  // namespace

// What a call has posted; given up where it is left before it is complete.
class SocketTransport::Call final : public Transfers {
 public:
  explicit Call(SocketTransport& transport) : transport_(transport) {}
  ~Call() override { transport_.links_.give_up(call_); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void send(int dst, Stream stream, const std::byte* data, std::size_t bytes) override {
    post_send(dst, static_cast<std::uint32_t>(stream), {data, bytes}, stream == Stream::kSums);
  }
  void receive(int src, Stream stream, std::byte* place, std::size_t bytes, int number) override {
    post_receive(src, static_cast<std::uint32_t>(stream), {place, bytes}, number);
  }

  void post_send(int dst, std::uint32_t stream, Outgoing bytes, bool is_urgent = false) {
    if (bytes.empty()) return;
    transport_.count_sent(static_cast<std::int64_t>(bytes.size()));
    transport_.links_.post(dst, {.stream = stream,
                                 .data = bytes.data(),
                                 .bytes = bytes.size(),
                                 .call = &call_,
                                 .is_urgent = is_urgent});
  }
  void post_receive(int src, std::uint32_t stream, Incoming place, int number = kUnnumbered) {
    if (place.empty()) return;
    transport_.links_.post(src, stream,
                           {.place = place.data(), .bytes = place.size(), .call = &call_, .number = number});
  }

  int await_numbered() override {
    transport_.links_.wait(call_, [this] { return !call_.arrived.empty(); });
    const int number = call_.arrived.front();
    call_.arrived.pop_front();
    return number;
  }
  void finish() override {
    transport_.links_.wait(call_, [this] { return call_.pending == 0; });
  }

 private:
  SocketTransport& transport_;
  SocketCall call_;
};

SocketTransport::SocketTransport(int rank, std::vector<UniqueFd> sockets, const SocketLinks::Options& options)
    : Transport(rank, static_cast<int>(sockets.size())), links_(std::move(sockets), options) {}

std::unique_ptr<Transfers> SocketTransport::begin_transfers() { return std::make_unique<Call>(*this); }

// The next rank first: not all at the same one.
void SocketTransport::exchange_bytes(std::span<const Outgoing> to, std::span<const Incoming> from) {
  constexpr auto kStream = static_cast<std::uint32_t>(Transfers::Stream::kParts);
  Call call(*this);
  for (int offset = 1; offset < size() && !from.empty(); ++offset) {
    const int src = (rank() + size() - offset) % size();
    call.post_receive(src, kStream, from[static_cast<std::size_t>(src)]);
  }
  for (int offset = 1; offset < size() && !to.empty(); ++offset) {
    const int dst = (rank() + offset) % size();
    call.post_send(dst, kStream, to[static_cast<std::size_t>(dst)]);
  }
  const auto own = static_cast<std::size_t>(rank());
  const auto place = from.empty() ? Incoming() : from[own];
  if (!place.empty() && place.data() != to[own].data())
    std::memmove(place.data(), to[own].data(), place.size());
  call.finish();
}

void SocketTransport::exchange(std::span<const at::Tensor> to, std::span<const at::Tensor> from) {
  std::vector<Outgoing> parts;
  std::vector<Incoming> places;
  for (const auto& tensor : to) parts.push_back(outgoing(tensor));
  for (const auto& tensor : from) places.push_back(incoming(tensor));
  exchange_bytes(parts, places);
}

void SocketTransport::all_gather(at::Tensor output, at::Tensor input) {
  const auto part = static_cast<std::int64_t>(input.nbytes());
  const std::vector<Outgoing> parts(static_cast<std::size_t>(size()), outgoing(input));
  exchange_bytes(parts, places_of(incoming(output), std::vector(parts.size(), part)));
}

void SocketTransport::all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> output_bytes,
                                 std::vector<std::int64_t> input_bytes) {
  exchange_bytes(parts_of(outgoing(input), input_bytes), places_of(incoming(output), output_bytes));
}

void SocketTransport::broadcast(at::Tensor tensor, int root) {
  const auto bytes = incoming(tensor);
  if (size() > 2 && bytes.size() > kDirectBroadcast) return broadcast_in_parts(bytes, root);
  Call call(*this);
  constexpr auto kStream = static_cast<std::uint32_t>(Transfers::Stream::kParts);
  if (rank() != root) call.post_receive(root, kStream, bytes);
  for (int other = 0; other < size() && rank() == root; ++other)
    if (other != root) call.post_send(other, kStream, bytes);
  call.finish();
}

// Each of the others gets a part, and passes it on to the rest: the root sends all of it once.
void SocketTransport::broadcast_in_parts(Incoming bytes, int root) {
  constexpr auto kStream = static_cast<std::uint32_t>(Transfers::Stream::kParts);
  const auto others = static_cast<std::size_t>(size() - 1);
  const auto length = (bytes.size() + others - 1) / others;
  const auto part_of = [&](int member) {
    const auto number = static_cast<std::size_t>((member + size() - root) % size()) - 1;
    const auto begin = std::min(bytes.size(), number * length);
    return bytes.subspan(begin, std::min(length, bytes.size() - begin));
  };
  Call call(*this);
  for (int offset = 1; offset < size(); ++offset) {
    const int other = (rank() + offset) % size();
    if (rank() == root)
      call.post_send(other, kStream, part_of(other));
    else if (other == root)
      call.post_receive(root, kStream, part_of(rank()), 0);
    else
      call.post_receive(other, kStream, part_of(other));
  }
  if (rank() != root && !part_of(rank()).empty()) {
    call.await_numbered();
    for (int offset = 1; offset < size(); ++offset) {
      const int other = (rank() + offset) % size();
      if (other != root) call.post_send(other, kStream, part_of(rank()));
    }
  }
  call.finish();
}

// After each round a rank knows of twice as many.
void SocketTransport::barrier() {
  constexpr auto kStream = static_cast<std::uint32_t>(Transfers::Stream::kParts);
  for (int distance = 1; distance < size(); distance *= 2) {
    const std::byte here{1};
    std::byte there{};
    Call call(*this);
    call.post_receive((rank() + size() - distance) % size(), kStream, {&there, 1});
    call.post_send((rank() + distance) % size(), kStream, {&here, 1});
    count_sent(-1);
    call.finish();
  }
}

void SocketTransport::send(const at::Tensor& tensor, int dst, int tag) {
  Call call(*this);
  call.post_send(dst, kMessages | static_cast<std::uint32_t>(tag), outgoing(tensor));
  call.finish();
}

void SocketTransport::recv(const at::Tensor& tensor, int src, int tag) {
  Call call(*this);
  call.post_receive(src, kMessages | static_cast<std::uint32_t>(tag), incoming(tensor));
  call.finish();
}

}  // namespace lockstep::detail
