#include "comm/transport/gloo/exchange.h"

#include <cstring>
#include <stdexcept>
#include <string>

#include "comm/errors.h"

namespace lockstep::detail {
namespace {

bool is_large(const at::Tensor& part) { return part.is_cpu() && part.nbytes() >= kLeastPeerMemoryBytes; }

at::Tensor part_for(std::span<const at::Tensor> parts, int rank) {
  if (parts.empty()) return {};
  const auto& part = parts[static_cast<std::size_t>(rank)];
  return part.defined() && part.numel() > 0 ? part : at::Tensor();
}

at::Tensor note_of(const at::Tensor& part) {
  const auto where = memory_part(part.const_data_ptr(), part.nbytes());
  auto note = at::empty({sizeof where}, at::kByte);
  std::memcpy(note.mutable_data_ptr(), &where, sizeof where);
  return note;
}

}  // namespace

at::Tensor as_bytes(const at::Tensor& tensor) { return tensor.view({-1}).view(at::kByte); }

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

Exchange::Exchange(Messages& messages, int tag, Seal& seal)
    : messages_(messages), tag_(tag), peers_(static_cast<std::size_t>(messages.size())), seal_(seal) {}

void Exchange::know(const MemoryAccess& access) {
  const auto own = static_cast<std::size_t>(messages_.rank());
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    peers_[rank] = {.can_read = access.can_read(rank, own),
                    .is_readable = access.can_read(own, rank),
                    .owner = access.owners[rank]};
  }
  are_mutual_ = access.is_mutual();
}

bool Exchange::offers_to_all(const at::Tensor& part) const { return are_mutual_ && is_large(part); }

void Exchange::run(std::span<const at::Tensor> to, std::span<const at::Tensor> from) try {
  Works works;
  auto offered = receive(from, works);
  auto offers = send(to, works);
  const auto own = part_for(from, messages_.rank());
  if (own.defined()) as_bytes(own).copy_(as_bytes(part_for(to, messages_.rank())));
  for (auto& offer : offered) read(offer, works);
  for (auto& offer : offers) await_reader(offer, works);
  for (const auto& work : works) messages_.await(work);
} catch (...) {
  seal_.revoke();
  throw;
}

// Between two ranks messages come in the order in which they were sent, and are expected in that order:
// parts or offers of parts, then what became of offers, then parts of which the offer could not be taken.
Exchange::Offers Exchange::receive(std::span<const at::Tensor> from, Works& works) {
  Offers offered;
  for (int offset = 1; offset < messages_.size(); ++offset) {
    const int src = (messages_.rank() + messages_.size() - offset) % messages_.size();
    const auto part = part_for(from, src);
    if (!part.defined()) continue;
    if (!is_large(part) || !peer(src).is_readable) {
      works.push_back(messages_.recv(part, src, tag_));
      continue;
    }
    const auto note = at::empty({sizeof(MemoryPart)}, at::kByte);
    offered.push_back({.peer = src, .part = part, .note = note, .answer = messages_.recv(note, src, tag_)});
  }
  return offered;
}

Exchange::Offers Exchange::send(std::span<const at::Tensor> to, Works& works) {
  Offers offers;
  for (int offset = 1; offset < messages_.size(); ++offset) {
    const int dst = (messages_.rank() + offset) % messages_.size();
    const auto part = part_for(to, dst);
    if (!part.defined()) continue;
    if (!is_large(part) || !peer(dst).can_read) {
      works.push_back(messages_.send(part, dst, tag_));
      continue;
    }
    works.push_back(messages_.send(note_of(part), dst, tag_));
    offers.push_back({.peer = dst, .part = part, .note = at::empty({1}, at::kByte), .answer = {}});
  }
  for (auto& offer : offers) offer.answer = messages_.recv(offer.note, offer.peer, tag_);
  return offers;
}

void Exchange::read(Offer& offer, Works& works) {
  messages_.await(offer.answer);
  MemoryPart where;
  std::memcpy(&where, offer.note.const_data_ptr(), sizeof where);
  if (where.bytes != offer.part.nbytes())
    throw std::runtime_error("rank " + std::to_string(offer.peer) + " of the group offers " +
                             std::to_string(where.bytes) + " bytes, expected " +
                             std::to_string(offer.part.nbytes()));
  const bool is_read = !read_peer_memory(peer(offer.peer).owner, where, offer.part.mutable_data_ptr());
  works.push_back(messages_.send(at::full({1}, is_read ? 1 : 0, at::kByte), offer.peer, tag_));
  if (is_read) return;
  peer(offer.peer).is_readable = false;
  works.push_back(messages_.recv(offer.part, offer.peer, tag_));
}

void Exchange::await_reader(Offer& offer, Works& works) {
  messages_.await(offer.answer);
  if (offer.note.const_data_ptr<std::uint8_t>()[0] == 1) return;
  peer(offer.peer).can_read = false;
  works.push_back(messages_.send(offer.part, offer.peer, tag_));
}

}  // namespace lockstep::detail
