#include "parallel/sharded/flat_parameter.h"

#include <algorithm>
#include <limits>

#include <lockstep/base/error.h>
#include <lockstep/torch.h>

#include "parallel/released_storage.h"

namespace lockstep::detail {
namespace {

std::vector<std::int64_t> sizes_of(const std::vector<ShardedTensor>& members) {
  std::vector<std::int64_t> sizes;
  for (const auto& member : members) sizes.push_back(member.tensor.numel());
  return sizes;
}

at::ScalarType master_dtype(const std::vector<ShardedTensor>& members, const ComputeDtype& compute) {
  return compute.master.value_or(members.front().tensor.scalar_type());
}

std::string message_of(const std::string& name) {
  return "parameter " + name +
         " is sharded over the ranks and has no memory here; LibTorch's operators gather it when they use "
         "it, raw pointers (data_ptr, accessor, torch::save) do not: copy it first, parameter.clone()";
}

// The tensor in a storage of its own, dense and row by row, for memory that comes later.
void give_own_storage(const at::Tensor& tensor, at::ScalarType dtype, at::Device device) {
  if (owns_its_storage(tensor) && tensor.scalar_type() == dtype && tensor.device() == device) return;
  auto& mutable_tensor = const_cast<at::Tensor&>(tensor);
  mutable_tensor.set_data(without_memory(tensor.sizes(), dtype, device));
}

// Who writes one piece leaves the others as they are.
void count_versions_apart(const at::Tensor& piece) {
  if (!piece.is_inference()) torch::autograd::impl::set_version_counter(piece, c10::VariableVersion(0));
}

// What was not changed keeps the digits that what operators see has no room for.
void take_changes(const at::Tensor& own, const at::Tensor& before, const at::Tensor& now) {
  const auto here = now.to(own.device());
  own.copy_(at::where(here.eq(before), own, here.to(own.scalar_type())));
}

}  // namespace

FlatParameter::FlatParameter(std::vector<ShardedTensor> members, const ShardMesh& mesh,
                             const ComputeDtype& compute, UseHandler& handler, std::size_t first_tag,
                             ShardMemory& memory, const FetchParameter& fetch)
    : members_(std::move(members)),
      mesh_(mesh),
      memory_(memory),
      layout_(sizes_of(members_), mesh.shards()),
      dtype_(compute.dtype.value_or(members_.front().tensor.scalar_type())),
      own_dtype_(members_.front().tensor.scalar_type()),
      casts_arguments_(compute.casts_arguments && (dtype_ != own_dtype_ || compute.master)),
      reduces_quantized_(compute.reduces_quantized),
      is_trained_(members_.front().tensor.requires_grad()),
      is_resident_(mesh.shards() == 1 && dtype_ == master_dtype(members_, compute) && !memory.is_on_host()),
      gather_(mesh, layout_.shard_elements(), dtype_, compute.travel, memory) {
  const torch::NoGradGuard no_grad;
  if (compute.keeps_row && mesh.shards() > 1 && !memory_.is_on_disk()) {
    const c10::InferenceMode off(false);
    kept_row_ = memory_.row_zeros(layout_.total_elements(), dtype_);
  }
  shard_ = memory_for_part(master_dtype(members_, compute));
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (fetch) fetch(members_[i].tensor);
    take_over(i);
    marks_.push_back(std::make_unique<TensorMark>(members_[i].tensor, handler, first_tag + i));
  }
  if (wants_narrow_shard()) {
    narrow_.emplace(memory_for_part(dtype_), pieces_, layout_.pieces(mesh_.shard()));
    gather_.start_from(*narrow_);
  }
  if (!is_resident_) return;
  row_ = shard_;
  attach_members();
}

// What others gather is at its place already where the row stays.
at::Tensor FlatParameter::memory_for_part(at::ScalarType dtype) {
  const auto elements = layout_.shard_elements();
  if (kept_row_.defined() && dtype == dtype_ && !memory_.is_on_host())
    return kept_row_.narrow(0, mesh_.shard() * elements, elements);
  return memory_.zeros(elements, dtype);
}

void FlatParameter::take_over(std::size_t i) {
  const auto& [name, tensor] = members_[i];
  const auto& piece = place(i);
  auto mine = shard_.narrow(0, piece.offset, piece.count);
  mine.copy_(tensor.detach().reshape({-1}).narrow(0, piece.begin, piece.count));
  pieces_.push_back(mine.detach().set_requires_grad(is_trained_));
  count_versions_apart(pieces_.back());
  give_own_storage(tensor, dtype_, memory_.device());
  messages_.push_back(message_of(name));
  release_memory(tensor, messages_.back());
}

// Whoever writes to the copy has its address only from there.
void FlatParameter::take_over_piece(std::size_t i, at::Tensor piece,
                                    const std::shared_ptr<NarrowCopy>& copy) {
  const torch::NoGradGuard no_grad;
  const c10::InferenceMode off(false);
  piece.mutable_grad().reset();
  piece.set_data(pieces_[i].detach());
  piece.set_requires_grad(is_trained_);
  pieces_[i] = piece;
  if (narrow_) {
    narrow_->take_over(i, piece, copy);
  } else if (copy) {
    *copy = {.elements = at::empty({piece.numel()}, copy->elements.options())};
  }
}

bool FlatParameter::wants_narrow_shard() const {
  return !shard_.is_inference() &&
         has_narrow_shard(shard_.scalar_type(), dtype_, is_trained_, gather_.is_quantized(), mesh_);
}

void FlatParameter::forget_copies() {
  gather_.forget();
  if (narrow_) narrow_->forget();
}

void FlatParameter::forget_unless_written() {
  gather_.forget();
  if (narrow_) narrow_->forget_unless_written();
}

FlatParameter::~FlatParameter() = default;

std::int64_t FlatParameter::gathered_bytes() const {
  return layout_.total_elements() * static_cast<std::int64_t>(c10::elementSize(dtype_));
}

void FlatParameter::start_gather(MemoryPool& pool, std::int64_t number) {
  row_ = kept_row_.defined() ? kept_row_ : pool.take(layout_.total_elements(), dtype_);
  gather_.start(pool, shard_, row_, number);
}

void FlatParameter::finish_gather(MemoryPool& pool) {
  gather_.finish(pool);
  attach_members();
}

// What a member was converted to is its own.
bool FlatParameter::lies_in_row(std::size_t i) const {
  return !is_held(i) && marks_[i] && marks_[i]->is_intact();
}

void FlatParameter::attach_members() {
  is_live_ = true;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (lies_in_row(i)) attach_memory(members_[i].tensor, row_, layout_.offset(i));
  }
}

// Of member `i`, what this rank's shard has.
at::Tensor FlatParameter::part_of(const at::Tensor& row, std::size_t i) const {
  const auto& piece = place(i);
  return row.narrow(0, mesh_.shard() * layout_.shard_elements() + piece.offset, piece.count);
}

void FlatParameter::keep_written(std::size_t i) {
  if (is_resident_ || is_held(i)) return;
  const torch::NoGradGuard no_grad;
  const c10::InferenceMode off(false);
  const auto& piece = place(i);
  const auto now = part_of(row_, i);
  auto own = shard_.narrow(0, piece.offset, piece.count);
  forget_copies();
  if (!gather_.changes(shard_.scalar_type())) {
    own.copy_(now);
    return;
  }
  if (!seen_.defined()) seen_ = gather_.as_gathered(shard_);
  auto seen = seen_.narrow(0, piece.offset, piece.count);
  take_changes(own, seen, now);
  seen.copy_(now);
}

void FlatParameter::release(MemoryPool& pool, bool overwrites) {
  if (is_resident_) return;
  gather_.drop(pool);
  seen_.reset();
  is_live_ = false;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (lies_in_row(i)) release_memory(members_[i].tensor, messages_[i]);
  }
  if (overwrites) overwrite_row();
  if (!kept_row_.defined()) pool.give(std::move(row_));
  row_.reset();
}

// But for what may be the shard.
void FlatParameter::overwrite_row() const {
  const auto elements = layout_.shard_elements();
  for (int shard = 0; shard < mesh_.shards(); ++shard) {
    if (kept_row_.defined() && shard == mesh_.shard()) continue;
    row_.narrow(0, shard * elements, elements).fill_(std::numeric_limits<double>::quiet_NaN());
  }
}

// The shard itself where it is all.
at::Tensor FlatParameter::whole_row(at::ScalarType dtype) const {
  const auto own = shard_.to(dtype);
  if (mesh_.shards() == 1) return own;
  auto row = at::empty({layout_.total_elements()}, own.options());
  mesh_.gather.all_gather(row, own);
  return row;
}

void FlatParameter::hold(std::span<const std::size_t> held) {
  const torch::NoGradGuard no_grad;
  const c10::InferenceMode off(false);
  held_.resize(members_.size());
  at::Tensor row;
  for (const auto i : held) {
    if (held_[i].count++ > 0) continue;
    if (!row.defined()) row = whole_row(dtype_).to(memory_.device());
    if (row.is_same(shard_)) row = shard_.clone();
    held_[i].row = row;
    attach_memory(members_[i].tensor, row, layout_.offset(i));
  }
}

void FlatParameter::keep_held(std::size_t i) {
  const torch::NoGradGuard no_grad;
  const c10::InferenceMode off(false);
  const auto& piece = place(i);
  const auto own = shard_.narrow(0, piece.offset, piece.count);
  take_changes(own, own.to(dtype_), part_of(held_[i].row, i));
}

void FlatParameter::let_go(std::size_t i) {
  if (--held_[i].count > 0) return;
  held_[i].row.reset();
  if (is_live_) {
    attach_memory(members_[i].tensor, row_, layout_.offset(i));
  } else {
    release_memory(members_[i].tensor, messages_[i]);
  }
}

std::vector<at::Tensor> FlatParameter::whole_values() const {
  const torch::NoGradGuard no_grad;
  const c10::InferenceMode off(false);
  const auto row = whole_row(shard_.scalar_type());
  std::vector<at::Tensor> values;
  for (std::size_t i = 0; i < members_.size(); ++i)
    values.push_back(row.narrow(0, layout_.offset(i), members_[i].tensor.numel()));
  return values;
}

// What the user has put in the place of a member stays.
void FlatParameter::restore(const std::vector<at::Tensor>& values) {
  const torch::NoGradGuard no_grad;
  const c10::InferenceMode off(false);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    auto tensor = members_[i].tensor;
    const bool is_intact = marks_[i]->is_intact();
    marks_[i].reset();
    if (!is_intact) continue;
    const auto own = values[i].to(memory_.device(), own_dtype_, /*non_blocking=*/false, /*copy=*/true);
    tensor.set_data(own.view(tensor.sizes()));
  }
  leave_row();
}

// An optimizer may hold pieces on.
void FlatParameter::leave_row() {
  if (!kept_row_.defined()) return;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    pieces_[i].set_data(pieces_[i].detach().clone());
    if (const auto copy = narrow_copy(i)) copy->elements = copy->elements.clone();
  }
  narrow_.reset();
  shard_.reset();
  kept_row_.reset();
}

bool FlatParameter::is_intact() const {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (!marks_[i] || !marks_[i]->is_intact() || members_[i].tensor.requires_grad() != is_trained_)
      return false;
  }
  return true;
}

void FlatParameter::check_members() const {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const auto& [name, tensor] = members_[i];
    const bool is_intact = marks_[i] && marks_[i]->is_intact();
    if (is_intact && (is_trained_ || !tensor.requires_grad())) continue;
    throw ConfigError(
        "parallel",
        {.what = "parameter " + name + " is no longer what was sharded",
         .expected = is_intact ? "a frozen one" : "the tensor of setup",
         .got = is_intact ? "one that requires a gradient now"
                          : "one that was moved, converted or replaced (module->to(), set_data())",
         .hint = "move, convert and unfreeze before the module is set up"});
  }
}

}  // namespace lockstep::detail
