#include "parallel/sharded/narrow_shard.h"

#include <utility>

#include <lockstep/torch.h>

namespace lockstep::detail {

NarrowShard::NarrowShard(at::Tensor elements, std::span<const at::Tensor> pieces,
                         std::span<const ShardPiece> places)
    : elements_(std::move(elements)) {
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    auto copy = elements_.narrow(0, places[i].offset, places[i].count);
    parts_.push_back(
        {.piece = pieces[i], .copy = std::make_shared<NarrowCopy>(NarrowCopy{.elements = copy})});
  }
}

const at::Tensor& NarrowShard::current() {
  for (auto& [piece, copy, current_of] : parts_) {
    const auto version = static_cast<std::uint32_t>(piece._version());
    if (copy->written_of) current_of = std::exchange(copy->written_of, std::nullopt);
    if (current_of == version) continue;
    convert(piece, *copy);
    current_of = version;
  }
  return elements_;
}

void NarrowShard::forget_unless_written() {
  for (auto& part : parts_) part.current_of = std::exchange(part.copy->written_of, std::nullopt);
}

void NarrowShard::forget() {
  forget_unless_written();
  for (auto& part : parts_) part.current_of.reset();
}

}  // namespace lockstep::detail
