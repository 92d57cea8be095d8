// The part of ShardedEngine that gives and takes values: whole, in runs, held for a while, or another
// engine's.
#include <algorithm>
#include <map>

#include <lockstep/base/error.h>
#include <lockstep/parallel/sharded/sharded_engine.h>
#include <lockstep/torch.h>

#include "device/step_recording.h"
#include "optim/pieces.h"
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

namespace {

// Kernels compute in it, and keep state in it.
at::ScalarType type_of_state(const at::Tensor& piece) {
  return piece.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// Of one parameter, under an engine that has ended and the next one.
struct MovedPiece {
  const ShardedEngine& before;
  at::Tensor parameter;
  PieceRef from;
  PieceRef to;
  at::ScalarType state_type_before;

  // This rank's run now of what has a run of the parameter on each rank. Collective.
  at::Tensor run_of(const at::Tensor& elements) const {
    const auto& place = to.flat->place(to.member);
    return before.gather_elements(parameter, elements).view({-1}).narrow(0, place.begin, place.count);
  }
};

// What nobody has changed since it was rounded, to the module's own type or the one that it is computed in,
// keeps its digits.
void keep_digits(const MovedPiece& moved, const at::Tensor& old, const at::Tensor& own) {
  const auto& flat = *moved.from.flat;
  if (old.scalar_type() == flat.own_dtype() && old.scalar_type() == flat.dtype()) return;
  const auto kept = moved.run_of(old);
  for (const auto rounded : {flat.own_dtype(), flat.dtype()})
    own.copy_(at::where(kept.to(rounded).to(own.scalar_type()).eq(own), kept.to(own.scalar_type()), own));
}

void move_piece(const MovedPiece& moved) {
  const auto piece = moved.from.flat->piece(moved.from.member);
  auto& flat = *moved.to.flat;
  if (flat.piece(moved.to.member).is_same(piece)) return;
  const auto own = flat.piece(moved.to.member).detach();
  keep_digits(moved, piece.detach(), own);
  at::Tensor gradient;
  if (piece.grad().defined()) {
    const bool is_of_its_type = piece.grad().scalar_type() == piece.scalar_type();
    const auto type = is_of_its_type ? own.scalar_type() : piece.grad().scalar_type();
    gradient = moved.run_of(piece.grad()).to(type, /*non_blocking=*/false, /*copy=*/true);
  }
  const auto copy = narrow_copy_of(piece);
  flat.take_over_piece(moved.to.member, piece, copy);
  if (gradient.defined()) piece.mutable_grad() = std::move(gradient);
  const auto narrow = flat.narrow_copy(moved.to.member);
  mark_pieces(std::vector{Piece{.elements = piece, .narrow = narrow ? narrow : copy}});
}

[[noreturn]] void refuse_to_move(const Optimizer& optimizer, const std::string& parameter, std::string got) {
  throw ConfigError("parallel", {.what = std::string(optimizer.name()) +
                                         " cannot go on with a model that was changed and set up again",
                                 .expected = "state of " + parameter + " that can be dealt out anew",
                                 .got = std::move(got),
                                 .hint = "make a new optimizer for the model, and let this one go before"});
}

// In its own place where that is as large, such as a file.
void move_state(const MovedPiece& moved, const OptimizerState& state) {
  const auto type = state.tensor.scalar_type() == moved.state_type_before
                        ? type_of_state(moved.to.flat->piece(moved.to.member))
                        : state.tensor.scalar_type();
  const auto& place = moved.to.flat->place(moved.to.member);
  const auto run = moved.run_of(state.tensor);
  auto tensor = state.tensor;
  if (tensor.numel() == place.count && tensor.scalar_type() == type) return void(tensor.copy_(run));
  tensor.set_data(run.to(type, /*non_blocking=*/false, /*copy=*/true));
}

using MovedPieces = std::map<std::string, MovedPiece>;

// On every rank.
bool keeps_sizes(const MovedPiece& moved) {
  const auto &from = moved.from.flat->layout(), &to = moved.to.flat->layout();
  if (type_of_state(moved.to.flat->piece(moved.to.member)) != moved.state_type_before) return false;
  if (from.shards() != to.shards()) return false;
  for (int shard = 0; shard < to.shards(); ++shard)
    if (from.pieces(shard)[moved.from.member].count != to.pieces(shard)[moved.to.member].count) return false;
  return true;
}

// A file is as large as it was made.
void require_room_on_disk(const Optimizer& optimizer, const MovedPieces& moved) {
  for (const auto& [name, tensor] : optimizer.parameters())
    if (!keeps_sizes(moved.at(name))) refuse_to_move(optimizer, name, "state on disk, of another size now");
}

// Counts of steps are the same on all ranks.
std::vector<OptimizerState> state_to_move(Optimizer& optimizer, const MovedPieces& moved) {
  for (const auto& [name, tensor] : optimizer.parameters())
    if (!moved.contains(name)) refuse_to_move(optimizer, name, "a model without that tensor");
  auto state = optimizer.state();
  std::erase_if(state, [](const OptimizerState& entry) { return entry.kind == "step"; });
  return state;
}

// An optimizer of a program's own may show copies of what it keeps.
void require_moved(Optimizer& optimizer, const MovedPieces& moved) {
  for (const auto& state : state_to_move(optimizer, moved)) {
    const auto& [flat, member] = moved.at(state.parameter).to;
    if (state.tensor.numel() != flat->place(member).count)
      refuse_to_move(optimizer, state.parameter, "its " + state.kind + ", of the size of before");
  }
}

}  // namespace

void ShardedEngine::take_over(const ShardedEngine& before, std::span<Optimizer* const> optimizers) {
  const torch::NoGradGuard no_grad;
  const c10::InferenceMode off(false);
  MovedPieces moved;
  for (const auto& [name, parameter] : impl_->states.parameters) {
    const auto from = before.impl_->find(parameter), to = impl_->find(parameter);
    if (!from || !to) continue;
    const auto type = type_of_state(from->flat->piece(from->member));
    moved.emplace(name, MovedPiece{before, parameter, *from, *to, type});
  }
  std::vector<std::vector<OptimizerState>> states;  // in the sizes of before
  const auto& offload = before.plan().offload;
  for (auto* optimizer : optimizers) {
    states.push_back(state_to_move(*optimizer, moved));
    if (offload && offload->optimizer) require_room_on_disk(*optimizer, moved);
  }
  for (const auto& [name, piece] : moved) move_piece(piece);
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    for (const auto& state : states[i]) move_state(moved.at(state.parameter), state);
    require_moved(*optimizers[i], moved);
  }
  // Exchanges that optimizers hold ask the table of before.
  std::swap(*before.impl_->pieces, *impl_->pieces);
  std::swap(before.impl_->pieces, impl_->pieces);
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
