#include "parallel/sharded/row_gather.h"

#include <utility>

#include <c10/core/StreamGuard.h>

#include <lockstep/comm/packed_collectives.h>
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

void NarrowShard::take_over(std::size_t i, const at::Tensor& piece, const std::shared_ptr<NarrowCopy>& copy) {
  auto& part = parts_[i];
  part.piece = piece;
  part.current_of.reset();
  if (!copy) return;
  *copy = {.elements = part.copy->elements};
  part.copy = copy;
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

RowGather::RowGather(const ShardMesh& mesh, std::int64_t shard_elements, at::ScalarType dtype,
                     RowTravel travel, ShardMemory& memory)
    : mesh_(mesh),
      memory_(memory),
      format_(shard_elements, CodeBits::k8),
      dtype_(dtype),
      is_quantized_(travel.is_quantized) {
  if (!travel.has_secondary || mesh.gather_near.size() == 1) return;
  const auto shards = mesh.shards() / mesh.gather_near.size();
  if (!is_quantized_)
    secondary_ = memory.row_zeros(shards * shard_elements, dtype);
  else if (memory.is_on_host())
    secondary_ = memory.row_zeros(shards * format_.bytes(), at::kByte);
  else
    secondary_ = memory.zeros(shards * format_.bytes(), at::kByte);
}

void RowGather::start(MemoryPool& pool, const at::Tensor& shard, const at::Tensor& row, std::int64_t number) {
  const torch::NoGradGuard no_grad;
  row_ = row;
  if (memory_.is_on_host() && !has_secondary_) return start_from_host(pool, shard, number);
  if (mesh_.gather.size() == 1) return void(row.copy_(shard));
  travelling_ = is_quantized_ ? pool.take(format_.bytes() * mesh_.shards(), at::kByte) : row;
  work_ = has_secondary_ ? all_gather_flat_async(mesh_.gather_near, travelling_, secondary_, number)
                         : all_gather_flat_async(mesh_.gather, travelling_, part_of(pool, shard), number);
}

// What is computed meanwhile waits for neither the copy nor the collective that takes it.
void RowGather::start_from_host(MemoryPool& pool, const at::Tensor& shard, std::int64_t number) {
  const bool is_whole = mesh_.gather.size() == 1;
  const auto source = is_whole ? shard : part_on_host(shard);
  if (!is_whole) {
    travelling_ = is_quantized_ ? pool.take(format_.bytes() * mesh_.shards(), at::kByte) : row_;
    part_ = pool.take(source.numel(), is_quantized_ ? at::kByte : dtype_);
  }
  const c10::StreamGuard beside(memory_.begin_copies());
  memory_.copy_to_device(source, is_whole ? row_ : part_);
  if (is_whole)
    copied_ = memory_.mark_copies();
  else
    work_ = all_gather_flat_async(mesh_.gather, travelling_, part_, number);
}

// This rank's part of what travels.
at::Tensor RowGather::part_of(MemoryPool& pool, const at::Tensor& shard) {
  if (!changes(shard.scalar_type())) return shard;
  if (narrow_ != nullptr) return narrow_->current();
  if (is_quantized_) {
    part_ = pool.take(format_.bytes(), at::kByte);
    format_.write(shard, part_);
  } else {
    part_ = pool.take(shard.numel(), dtype_);
    part_.copy_(shard);
  }
  return part_;
}

// Quantised there, it is a quarter of the bytes.
at::Tensor RowGather::part_on_host(const at::Tensor& shard) const {
  if (!is_quantized_) return narrow_ != nullptr ? narrow_->current() : shard;
  auto record = at::empty({format_.bytes()}, at::TensorOptions(at::kByte).pinned_memory(true));
  format_.write(shard, record);
  return record;
}

void RowGather::finish(MemoryPool& pool) {
  const torch::NoGradGuard no_grad;
  wait();
  if (is_quantized_) format_.read_all(travelling_, row_);
  land(pool);
}

// What has failed fails again: nothing of it may be kept.
void RowGather::wait() {
  work_.wait();
  work_ = {};
  if (const auto copied = std::exchange(copied_, nullptr)) memory_.order_after(*copied);
}

void RowGather::drop(MemoryPool& pool) {
  wait();
  if (travelling_.defined()) land(pool);
}

// Whether anybody has use for it or not: the bytes have come.
void RowGather::land(MemoryPool& pool) {
  const torch::NoGradGuard no_grad;
  if (secondary_.defined() && !std::exchange(has_secondary_, true)) secondary_.copy_(own_slice());
  if (is_quantized_) pool.give(std::move(travelling_));
  if (part_.defined()) pool.give(std::move(part_));
  row_.reset();
  travelling_.reset();
  part_.reset();
}

at::Tensor RowGather::own_slice() const {
  return travelling_.narrow(0, mesh_.gather_near.rank() * secondary_.numel(), secondary_.numel());
}

std::int64_t RowGather::secondary_bytes() const {
  return secondary_.defined() ? static_cast<std::int64_t>(secondary_.nbytes()) : 0;
}

at::Tensor RowGather::as_gathered(const at::Tensor& shard) const {
  if (!is_quantized_) return shard.to(dtype_);
  const auto record = at::empty({format_.bytes()}, shard.options().dtype(at::kByte));
  auto values = at::empty({shard.numel()}, shard.options().dtype(dtype_));
  format_.write(shard, record);
  format_.read(record, values);
  return values;
}

}  // namespace lockstep::detail
