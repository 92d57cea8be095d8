// The part of ShardedEngine that gives and takes values: whole, in runs, or held for a while.
#include <map>

#include <lockstep/parallel/sharded/sharded_engine.h>
#include <lockstep/torch.h>

#include "device/step_recording.h"
#include "parallel/sharded/sharded_engine.h"

namespace lockstep {

using namespace detail;

namespace {

// `elements` as a run, or none where another rank gives it.
TensorShard shard_in(const PieceRef& ref, const at::Tensor& elements, ShardCopies copies) {
  const auto& tensor = ref.flat->members()[ref.member].tensor;
  if (copies == ShardCopies::kOne && ref.flat->mesh().replicate.rank() > 0)
    return {.elements = elements.reshape({-1}).narrow(0, 0, 0), .shape = tensor.sizes().vec()};
  return {.elements = elements, .shape = tensor.sizes().vec(), .begin = ref.flat->place(ref.member).begin};
}

}  // namespace

void ShardedEngine::gather_whole(std::unordered_map<const at::TensorImpl*, at::Tensor>& values,
                                 WholeValues type) {
  impl_->check_lives();
  const torch::NoGradGuard no_grad;
  const c10::InferenceMode off(false);
  const bool leads = impl_->comm.rank() == 0;
  for (const auto& unit : impl_->units) {
    for (const auto& flat : unit.flats) {
      const auto whole = flat->whole_values();
      for (std::size_t i = 0; leads && i < whole.size(); ++i) {
        const auto& tensor = flat->members()[i].tensor;
        const auto dtype = type == WholeValues::kMaster ? whole[i].scalar_type() : flat->own_dtype();
        values[tensor.unsafeGetTensorImpl()] =
            whole[i].to(dtype, /*non_blocking=*/false, /*copy=*/true).view(tensor.sizes());
      }
    }
  }
}

at::Tensor ShardedEngine::gather_elements(const at::Tensor& parameter, const at::Tensor& elements) const {
  const auto ref = impl_->piece_of(parameter);
  const torch::NoGradGuard no_grad;
  if (ref.flat->layout().shards() == 1) return elements.detach().clone().view(parameter.sizes());
  const auto whole = at::empty({parameter.numel()}, elements.options());
  ref.flat->mesh().gather.all_gather(pieces_of_all(ref, whole), elements.detach());
  return whole.view(parameter.sizes());
}

const at::Tensor& ShardedEngine::piece_of(const at::Tensor& parameter) const {
  const auto& [flat, member] = impl_->piece_of(parameter);
  return flat->piece(member);
}

std::optional<TensorShard> ShardedEngine::shard_of(const at::Tensor& parameter, ShardCopies copies) const {
  const auto found = impl_->find(parameter);
  if (!found) return std::nullopt;
  return shard_in(*found, found->flat->piece(found->member).detach(), copies);
}

TensorShard ShardedEngine::shard_of(const std::string& name, const at::Tensor& elements,
                                    ShardCopies copies) const {
  return shard_in(impl_->piece_of(name), elements, copies);
}

void ShardedEngine::forget_gathered() {
  impl_->residency.release_all();
  impl_->await_device();
}

void ShardedEngine::await_device() const { impl_->await_device(); }

void ShardedEngine::restore() {
  impl_->check_lives();
  outdate_recordings();
  impl_->residency.release_all();
  impl_->checkpointed.reset();
  impl_->offloaded.reset();
  for (const auto& unit : impl_->units) {
    for (const auto& flat : unit.flats) flat->restore(flat->whole_values());
  }
  const torch::NoGradGuard no_grad;
  const c10::InferenceMode off(false);
  for (auto& [buffer, dtype] : impl_->cast_from) buffer.set_data(buffer.to(dtype));
  impl_->gradients.reset();
  impl_->is_over = true;
}

// Unit by unit, on all ranks alike.
void ShardedEngine::hold(std::span<const at::Tensor> parameters) {
  impl_->check_lives();
  std::map<const FlatParameter*, std::vector<std::size_t>> wanted;
  for (const auto& parameter : parameters) {
    if (const auto ref = impl_->find(parameter)) wanted[ref->flat].push_back(ref->member);
  }
  for (const auto& unit : impl_->units) {
    for (const auto& flat : unit.flats) {
      if (wanted.contains(flat.get())) flat->hold(wanted.at(flat.get()));
    }
  }
}

// What is on its way may come to where they write.
void ShardedEngine::keep_held(std::span<const at::Tensor> parameters) {
  impl_->residency.release_all();
  for (const auto& parameter : parameters) {
    if (const auto ref = impl_->find(parameter)) ref->flat->keep_held(ref->member);
  }
  impl_->residency.release_all();
}

void ShardedEngine::let_go(std::span<const at::Tensor> parameters) noexcept {
  if (impl_->is_over) return;
  for (const auto& parameter : parameters) {
    if (const auto ref = impl_->find(parameter)) ref->flat->let_go(ref->member);
  }
}

std::string ShardedEngine::name_of(const at::Tensor& parameter) const {
  const auto ref = impl_->find(parameter);
  return ref ? ref->flat->members()[ref->member].name : std::string();
}

void ShardedEngine::gather_all() {
  impl_->check_lives();
  impl_->residency.gather_all();
}

at::Tensor ShardedEngine::in_own_type(const at::Tensor& buffer) const {
  for (const auto& [cast, dtype] : impl_->cast_from) {
    if (cast.is_same(buffer)) return buffer.detach().to(dtype);
  }
  return buffer.detach();
}

}  // namespace lockstep
