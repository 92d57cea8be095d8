// FlatGradient: the gradients of a FlatParameter on their way to the shards.
#include "parallel/sharded/gradient_reduction.h"

#include <algorithm>
#include <utility>

#include <c10/core/StreamGuard.h>

#include <lockstep/device/torch_device.h>
#include <lockstep/torch.h>

namespace lockstep::detail {
namespace {

// Flat; undefined as it is. That of an embedding may name rows only.
at::Tensor row_by_row(const at::Tensor& gradient) {
  if (!gradient.defined()) return gradient;
  const auto whole = gradient.layout() == at::kStrided ? gradient.detach() : gradient.detach().to_dense();
  return whole.reshape({-1});
}

// The first `elements` of `chunk`, where no piece lies.
void zero_gaps(const at::Tensor& chunk, std::span<const ShardPiece> pieces, std::int64_t elements) {
  std::int64_t end = 0;
  for (const auto& piece : pieces) {
    if (piece.count == 0) continue;
    chunk.narrow(0, end, piece.offset - end).zero_();
    end = piece.offset + piece.count;
  }
  chunk.narrow(0, end, elements - end).zero_();
}

at::ScalarType dtype_of_pieces(const FlatParameter& flat) { return flat.piece(0).scalar_type(); }

// On the shard: the shard's, or the members' where that is narrower and low precision is kept.
at::ScalarType gradient_dtype(const FlatParameter& flat, const MixedPrecision& mixed) {
  const auto own = dtype_of_pieces(flat);
  const bool is_narrower = c10::elementSize(flat.dtype()) < c10::elementSize(own);
  return mixed.keep_low_precision_grads && is_narrower ? flat.dtype() : own;
}

}  // namespace

// Sums of quantised gradients are float32: rounding them again would gain nothing.
FlatGradient::FlatGradient(FlatParameter& flat, const MixedPrecision& mixed, ReduceOp op,
                           const ZeroPlusPlus& options)
    : flat_(flat),
      mesh_(flat.mesh()),
      dtype_(mixed.reduce_dtype.value_or(flat.dtype())),
      landing_type_(flat.reduces_quantized() ? dtype_of_pieces(flat) : dtype_),
      gradient_type_(gradient_dtype(flat, mixed)),
      flags_((static_cast<std::int64_t>(flat.members().size()) + kRowAlignment - 1) / kRowAlignment *
             kRowAlignment),
      reduction_(
          flat.reduces_quantized()
              ? quantized_reduction(mesh_, {flat.layout().shard_elements(), flags_}, options.error_feedback)
              : plain_reduction(mesh_, op)) {}

bool FlatGradient::is_idle() const {
  return std::ranges::none_of(flat_.members(), [](const auto& member) {
    return member.tensor.requires_grad() || member.tensor.grad().defined();
  });
}

std::int64_t FlatGradient::row_bytes() const {
  return chunk_elements() * mesh_.shards() * static_cast<std::int64_t>(c10::elementSize(dtype_));
}

at::Tensor FlatGradient::chunk_for(int shard) const {
  return row_.narrow(0, shard * chunk_elements(), chunk_elements());
}

// A function with a graph of its own may bring a gradient in two parts. Undefined: zeros.
void FlatGradient::fill(std::size_t member, const at::Tensor& gradient) {
  for (int shard = 0; shard < mesh_.shards(); ++shard) {
    const auto& piece = flat_.layout().pieces(shard)[member];
    if (piece.count == 0) continue;
    auto target = chunk_for(shard).narrow(0, piece.offset, piece.count);
    if (!gradient.defined()) {
      target.zero_();
    } else if (is_filled_[member]) {
      target.add_(gradient.narrow(0, piece.begin, piece.count));
    } else {
      copies_.push_back({.from = gradient.narrow(0, piece.begin, piece.count), .to = target});
    }
  }
  is_filled_[member] = gradient.defined();
}

// The same as the last time, mostly: copied to a device only where they differ.
const at::Tensor& FlatGradient::own_flags() {
  if (flags_of_last_.defined() && flags_of_last_.device() == row_.device() && is_filled_ == last_filled_)
    return flags_of_last_;
  const auto flags = at::zeros({flags_}, at::kFloat);
  for (std::size_t i = 0; i < is_filled_.size(); ++i) flags.data_ptr<float>()[i] = is_filled_[i] ? 1 : 0;
  flags_of_last_ = to_device(flags, row_.device());
  last_filled_ = is_filled_;
  return flags_of_last_;
}

void FlatGradient::fill_flags() {
  const auto& flags = own_flags();
  const auto elements = flat_.layout().shard_elements();
  for (int shard = 0; shard < mesh_.shards(); ++shard) {
    const auto chunk = chunk_for(shard);
    chunk.narrow(0, elements, flags_).copy_(flags);
    if (flat_.reduces_quantized())
      zero_gaps(chunk, flat_.layout().pieces(shard), elements);  // they take part in scales
  }
}

// Gradients that are there already are added to.
bool FlatGradient::lands_in_place() const {
  bool is_free = landing_type_ == gradient_type_ && !flat_.memory().is_on_host();
  for (std::size_t i = 0; i < flat_.members().size(); ++i)
    is_free = is_free && !flat_.piece(i).grad().defined();
  return is_free;
}

void FlatGradient::take_memory() {
  if (!averages_.defined()) averages_ = flat_.memory().zeros(chunk_elements(), gradient_type_);
}

std::int64_t FlatGradient::bytes_to_take() const {
  return averages_.defined() ? 0
                             : chunk_elements() * static_cast<std::int64_t>(c10::elementSize(gradient_type_));
}

void FlatGradient::take_row(MemoryPool& pool) {
  if (row_.defined()) return;
  take_memory();
  chunk_ = lands_in_place() ? averages_ : pool.take(chunk_elements(), landing_type_);
  row_ = mesh_.shards() == 1 ? chunk_ : pool.take(chunk_elements() * mesh_.shards(), dtype_);
  is_filled_.assign(flat_.members().size(), false);
  copies_.clear();  // those of a pass that was given up
}

void FlatGradient::take_early(MemoryPool& pool, std::size_t member) {
  const torch::NoGradGuard no_grad;
  auto& gradient = flat_.members()[member].tensor.mutable_grad();
  if (gradient.layout() != at::kStrided || gradient.scalar_type() != dtype_ ||
      copies_at_once(gradient.device()))
    return;
  take_row(pool);
  fill(member, row_by_row(gradient));
  copy_noted();
  gradient.reset();
}

void FlatGradient::start(MemoryPool& pool, std::int64_t number) {
  const torch::NoGradGuard no_grad;
  take_row(pool);
  for (std::size_t i = 0; i < flat_.members().size(); ++i) {
    const auto& gradient = flat_.members()[i].tensor.grad();
    if (gradient.defined() || !is_filled_[i]) fill(i, row_by_row(gradient));
  }
  copy_noted();
  fill_flags();
  drop();
  reduction_->start(pool, std::exchange(row_, {}), chunk_, number);
}

void FlatGradient::land(MemoryPool& pool) {
  reduction_->finish(pool);
  const torch::NoGradGuard no_grad;
  const auto elements = flat_.layout().shard_elements();
  // What this rank has filled is used; of the rest another rank may have used some.
  at::Tensor flags;
  if (std::ranges::count(is_filled_, false) > 0)
    flags = chunk_.narrow(0, elements, flags_).to(at::kCPU, at::kFloat);
  const auto take_averages = [&] {
    for (std::size_t i = 0; i < flat_.members().size(); ++i) {
      const auto& piece = flat_.place(i);
      const bool is_used = is_filled_[i] || flags.data_ptr<float>()[i] != 0;
      if (is_used) take_average(i, chunk_.narrow(0, piece.offset, piece.count));
    }
  };
  if (!flat_.memory().is_on_host()) {
    take_averages();
    return give_back(pool);
  }
  {
    const c10::StreamGuard beside(flat_.memory().begin_copies());
    take_averages();
  }
  give_back(pool, flat_.memory().mark_copies());
}

void FlatGradient::give_back(MemoryPool& pool, std::shared_ptr<c10::Event> last_use) {
  if (row_.defined() && !row_.is_same(chunk_)) pool.give(std::move(row_));
  if (chunk_.defined() && !chunk_.is_same(averages_)) pool.give(std::move(chunk_), std::move(last_use));
  row_.reset();
  chunk_.reset();
}

void FlatGradient::drop_early(MemoryPool& pool) noexcept { give_back(pool); }

void FlatGradient::discard(MemoryPool& pool) noexcept {
  reduction_->drop(pool);
  give_back(pool);
}

// Sums of averages that have come in a wider type are rounded once, to that of the gradient: PyTorch's way.
void FlatGradient::take_average(std::size_t member, const at::Tensor& average) {
  const auto& piece = flat_.place(member);
  auto& gradient = flat_.piece(member).mutable_grad();
  if (gradient.defined()) {
    const bool is_alike = average.scalar_type() == gradient.scalar_type();
    const auto added = is_alike ? average : average.to(dtype_of_pieces(flat_));
    if (added.numel() > 0) gradient.add_(added.to(gradient.device()));
    return;
  }
  gradient = averages_.narrow(0, piece.offset, piece.count);
  if (!chunk_.is_same(averages_)) flat_.memory().copy_to_shard(average, gradient);
}

std::int64_t FlatGradient::average_bytes() const {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < flat_.members().size(); ++i) {
    const auto& gradient = flat_.piece(i).grad();
    if (gradient.defined()) bytes += static_cast<std::int64_t>(gradient.nbytes());
  }
  return bytes;
}

// The list keeps its memory for the next pass.
void FlatGradient::copy_noted() {
  copy_in(copies_);
  copies_.clear();
}

void FlatGradient::drop() {
  for (const auto& member : flat_.members()) member.tensor.mutable_grad().reset();
}

void FlatGradient::drop_averages() {
  for (std::size_t i = 0; i < flat_.members().size(); ++i) flat_.piece(i).mutable_grad().reset();
}

}  // namespace lockstep::detail
