#include <lockstep/parallel/sharded/sharded_engine.h>

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include <lockstep/base/error.h>
#include <lockstep/comm/coalesced.h>
#include <lockstep/optim/grad_norm.h>
#include <lockstep/torch.h>

#include "offload/file_space.h"
#include "optim/pieces.h"
#include "parallel/activations/block_segments.h"
#include "parallel/activations/offloaded_activations.h"
#include "parallel/ddp/backward_errors.h"
#include "parallel/deferred/deferred_operators.h"
#include "parallel/dispatch/mark_table.h"
#include "parallel/module_lists.h"
#include "parallel/sharded/gradient_reduction.h"
#include "parallel/sharded/late_parameters.h"
#include "parallel/sharded/plan_lines.h"
#include "parallel/sharded/residency.h"
#include "parallel/sharded/shard_exchange.h"
#include "parallel/sharded/sharded_norm.h"
#include "parallel/sharded/unit_plan.h"

namespace lockstep {
namespace {

using namespace detail;

ResidencyRules rules_of(const ShardingPlan& plan) {
  return {.keep = plan.keep,
          .max_live_elements = plan.max_live_elements,
          .prefetches_forward = plan.forward_prefetch,
          .backward_prefetch = plan.backward_prefetch,
          .most_prefetched_elements = plan.most_prefetched_elements,
          .limits_gathers = plan.limit_all_gathers,
          .releases_at_once = plan.release_after_every_operator};
}

bool is_sharded(const at::Tensor& tensor) {
  TensorUses uses;
  mark_table().find(tensor.storage().unsafeGetStorageImpl(), /*is_written=*/false, uses);
  return std::ranges::any_of(
      uses, [](const TensorUse& use) { return dynamic_cast<Residency*>(&use.mark->handler()) != nullptr; });
}

bool travels_alike(const ComputeDtype& a, const ComputeDtype& b) {
  return a.dtype == b.dtype && a.travel.is_quantized == b.travel.is_quantized &&
         a.reduces_quantized == b.reduces_quantized;
}

// Those of one dtype, trained or not, in the order of members.
template <class ComputeOf>
std::vector<std::vector<ShardedTensor>> by_kind(const std::vector<ShardedTensor>& members,
                                                const ComputeOf& compute_of) {
  std::vector<std::vector<ShardedTensor>> kinds;
  const auto is_alike = [&](const ShardedTensor& a, const ShardedTensor& b) {
    return a.tensor.scalar_type() == b.tensor.scalar_type() &&
           a.tensor.requires_grad() == b.tensor.requires_grad() &&
           travels_alike(compute_of(a), compute_of(b));
  };
  for (const auto& member : members) {
    const auto same =
        std::ranges::find_if(kinds, [&](const auto& kind) { return is_alike(kind.front(), member); });
    (same == kinds.end() ? kinds.emplace_back() : *same).push_back(member);
  }
  return kinds;
}

// Each in the first bucket that has room: of at most `most` elements, or of one larger member.
std::vector<std::vector<ShardedTensor>> in_buckets(std::vector<ShardedTensor> members, std::int64_t most) {
  std::vector<std::vector<ShardedTensor>> buckets;
  std::vector<std::int64_t> rooms;
  for (auto& member : members) {
    const auto elements = member.tensor.numel();
    auto bucket = static_cast<std::size_t>(
        std::ranges::find_if(rooms, [elements](auto room) { return elements <= room; }) - rooms.begin());
    if (bucket == rooms.size()) {
      buckets.emplace_back();
      rooms.push_back(most);
    }
    rooms[bucket] -= elements;
    buckets[bucket].push_back(std::move(member));
  }
  return buckets;
}

// `elements` as a run, or none where another rank gives it.
TensorShard shard_in(const PieceRef& ref, const at::Tensor& elements, ShardCopies copies) {
  const auto& tensor = ref.flat->members()[ref.member].tensor;
  if (copies == ShardCopies::kOne && ref.flat->mesh().replicate.rank() > 0)
    return {.elements = elements.reshape({-1}).narrow(0, 0, 0), .shape = tensor.sizes().vec()};
  return {.elements = elements, .shape = tensor.sizes().vec(), .begin = ref.flat->place(ref.member).begin};
}

void check_parameters(const ModuleStates& states) {
  for (const auto& [name, tensor] : states.parameters) {
    if (tensor.requires_grad() && !tensor.is_floating_point()) {
      throw ConfigError("parallel", {.what = "parameter " + name + " cannot be sharded",
                                     .expected = "real numbers",
                                     .got = c10::str(tensor.scalar_type()),
                                     .hint = "use strategy ddp, or view_as_real"});
    }
    if (!tensor.is_cpu() || tensor.layout() != at::kStrided) {
      throw ConfigError("parallel", {.what = "parameter " + name + " cannot be sharded",
                                     .expected = "a dense tensor on the CPU",
                                     .got = c10::str(tensor.layout(), " on ", tensor.device())});
    }
    if (is_sharded(tensor)) {
      throw ConfigError("parallel", {.what = "parameter " + name + " is sharded already",
                                     .expected = "a module with all its parameters",
                                     .hint = "call restore_sharded() before"});
    }
  }
}

constexpr auto kChangeHint =
    "restore_sharded() it before it is changed, and set it up again then; on all ranks";

// Each has its memory taken away.
void check_memory(const ModuleStates& states) {
  std::unordered_map<const void*, std::string> owners;
  for (const auto& [name, tensor] : states.parameters) {
    if (!tensor.is_floating_point()) continue;
    const auto [other, is_new] = owners.emplace(tensor.storage().unsafeGetStorageImpl(), name);
    if (is_new) continue;
    throw ConfigError("parallel", {.what = "two parameters share memory and cannot be sharded",
                                   .expected = "one parameter that is registered twice, or a copy",
                                   .got = name + " in the memory of " + other->second});
  }
}

}  // namespace

struct ShardedEngine::Impl {
  Impl(const torch::nn::Module& module, Communicator ranks, const ShardingPlan& chosen)
      : plan(chosen),
        comm(std::move(ranks)),
        states(module),
        swap(plan.offload ? make_swap(*plan.offload, comm.rank()) : nullptr),
        offloaded(plan.activation_offload
                      ? std::make_unique<OffloadedActivations>(module, *plan.activation_offload, comm.rank())
                      : nullptr),
        mesh(checked_mesh()),
        whole_mesh(make_whole_mesh()),
        ranks_on_disk(swap ? detail::ranks_on_disk(comm, plan.offload->directory) : 0),
        memory(plan.offload && plan.offload->parameters ? swap : nullptr),
        residency(units, pool, rules_of(chosen)) {
    const MemoryAtOnce at_once;
    if (plan.sync_module_states) compare_states(states, comm);
    const LateParameters late(states, comm, plan.sync_module_states);
    auto planned = plan_units(module, plan.units, plan.whole_modules, plan.units_option);
    const auto& checkpointing = plan.activation_checkpointing;
    if (checkpointing.is_on()) checkpointed.emplace(module, checkpointing.policy().value_or(plan.units));
    const auto own_dtype = batch_norm_tensors(module);
    cast_buffers(own_dtype);
    auto units_to_be = with_persistent_unit(std::move(planned), plan);
    require_room_for_shards(units_to_be, own_dtype);
    shard(std::move(units_to_be), own_dtype, late);
    gradients.emplace(units, pool, residency, plan.mixed_precision, mesh, plan.gradient_op,
                      plan.zero_plus_plus);
    mark_pieces_for_optimizers();
    lists.emplace(module, states, ChangeWords{.set_up_for = "sharding", .hint = kChangeHint});
    mark_policies_again(module);
    if (checkpointed) checkpointed->mark_again();
    if (offloaded) offloaded->mark_again();
  }

  ShardMesh checked_mesh() const {
    require_same_plan(plan, comm);
    check_parameters(states);
    check_memory(states);
    check_plan(plan, comm.size());
    const auto& options = plan.zero_plus_plus;
    if (plan.shards == 1) return make_shard_mesh(comm, 1);
    return make_shard_mesh(comm, plan.shards,
                           {.gather = options.secondary_shards,
                            .reduce = options.quantized_gradients ? options.gradient_neighbours : 1});
  }

  // What is whole travels in a group of its own: the caller may use `comm` within backward.
  ShardMesh make_whole_mesh() const {
    return {.replicate = has_whole_group() ? comm.split(0).value() : mesh.replicate};
  }

  bool has_whole_group() const { return mesh.shards() > 1 && plan.whole_modules; }

  void cast_buffers(const std::unordered_set<const at::TensorImpl*>& own_dtype) {
    const auto dtype = plan.mixed_precision.buffer_dtype;
    if (!dtype) return;
    const torch::NoGradGuard no_grad;
    for (auto& [name, buffer] : states.buffers) {
      if (!buffer.is_floating_point() || own_dtype.contains(buffer.unsafeGetTensorImpl())) continue;
      cast_from.emplace_back(buffer, buffer.scalar_type());
      buffer.set_data(buffer.to(*dtype));
    }
  }

  ComputeDtype compute_dtype(const ShardedTensor& member,
                             const std::unordered_set<const at::TensorImpl*>& own_dtype) const {
    if (own_dtype.contains(member.tensor.unsafeGetTensorImpl())) return {.master = plan.master_dtype};
    const auto& mixed = plan.mixed_precision;
    return {.dtype = mixed.param_dtype,
            .casts_arguments = mixed.cast_forward_inputs,
            .master = plan.master_dtype};
  }

  ComputeDtype compute_in(const PlannedUnit& unit, const ShardedTensor& member,
                          const std::unordered_set<const at::TensorImpl*>& own_dtype) const {
    if (unit.is_whole) return {.master = plan.master_dtype};
    auto compute = compute_dtype(member, own_dtype);
    compute.travel.has_secondary = !unit.is_persistent && plan.keep != KeepGathered::kUntilStep;
    if (mesh.shards() == 1 || member.tensor.dim() < 2) return compute;
    const auto& options = plan.zero_plus_plus;
    const bool is_trained = member.tensor.requires_grad();
    compute.travel.is_quantized = !unit.is_persistent && (options.quantized_weights ||
                                                          (options.quantized_frozen_weights && !is_trained));
    compute.reduces_quantized = options.quantized_gradients && is_trained;
    return compute;
  }

  // Members lose their memory one after the other: a disk that is full amid them would cost their values.
  void require_room_for_shards(const std::vector<PlannedUnit>& planned_units,
                               const std::unordered_set<const at::TensorImpl*>& own_dtype) const {
    if (!memory.is_on_disk()) return;
    std::uint64_t bytes = 0;
    for (const auto& unit : planned_units) {
      const auto& over = unit.is_whole ? whole_mesh : mesh;
      for (const auto& member : unit.members)
        bytes += static_cast<std::uint64_t>(member.tensor.numel()) *
                 bytes_of_element(member.tensor, compute_in(unit, member, own_dtype), over) /
                 static_cast<std::uint64_t>(over.shards());
    }
    require_room(bytes, "the shards");
    comm.barrier();  // all have seen how much room there is before any takes some
  }

  // Of a shard, and of its copy in 16 bits.
  static std::uint64_t bytes_of_element(const at::Tensor& parameter, const ComputeDtype& compute,
                                        const ShardMesh& over) {
    const auto master = compute.master.value_or(parameter.scalar_type());
    const auto computed = compute.dtype.value_or(parameter.scalar_type());
    const bool has_copy =
        has_narrow_shard(master, computed, parameter.requires_grad(), compute.travel.is_quantized, over);
    return c10::elementSize(master) + (has_copy ? c10::elementSize(computed) : 0);
  }

  // A unit's memory is gone before the next one's shard is made.
  void shard(std::vector<PlannedUnit> planned_units,
             const std::unordered_set<const at::TensorImpl*>& own_dtype, const LateParameters& late) {
    std::vector<MemberPlace> members;
    for (auto& planned : planned_units) {
      if (planned.members.empty()) continue;
      ShardedUnit unit{.name = planned.name,
                       .number = static_cast<std::int64_t>(units.size()) + 1,
                       .is_root = planned.name.empty() && planned_units.size() > 1,
                       .keeps_until_step = planned.is_persistent || plan.keep == KeepGathered::kUntilStep,
                       .is_spread = planned.is_persistent || planned.name.empty()};
      const auto compute_of = [&](const auto& member) { return compute_in(planned, member, own_dtype); };
      for (auto& kind : by_kind(planned.members, compute_of)) {
        const auto compute = compute_of(kind.front());
        for (auto& bucket : in_buckets(std::move(kind), plan.most_bucket_elements))
          add_flat(unit, std::move(bucket), planned.is_whole, compute, members, late);
      }
      units.push_back(std::move(unit));
      planned.members.clear();
    }
    residency.set_members(std::move(members));
  }

  void add_flat(ShardedUnit& unit, std::vector<ShardedTensor> tensors, bool is_whole,
                const ComputeDtype& compute, std::vector<MemberPlace>& members, const LateParameters& late) {
    const auto fetch = [&late](const at::Tensor& parameter) { late.fetch(parameter); };
    unit.flats.push_back(std::make_unique<FlatParameter>(std::move(tensors), is_whole ? whole_mesh : mesh,
                                                         compute, residency, members.size(), memory, fetch));
    auto& flat = *unit.flats.back();
    for (std::size_t i = 0; i < flat.members().size(); ++i) {
      members.push_back({.unit = units.size(), .flat = unit.flats.size() - 1, .member = i});
      const auto& member = flat.members()[i];
      pieces->emplace(member.name, PieceRef{&flat, i});
      by_tensor.emplace(member.tensor.unsafeGetTensorImpl(), PieceRef{&flat, i});
    }
  }

  void mark_pieces_for_optimizers() const {
    std::vector<Piece> all;
    for (const auto& [name, ref] : *pieces)
      all.push_back({.elements = ref.flat->piece(ref.member), .narrow = ref.flat->narrow_copy(ref.member)});
    mark_pieces(all);
  }

  const PieceRef& piece_of(const std::string& name) const {
    const auto found = pieces->find(name);
    if (found != pieces->end()) return found->second;
    throw ConfigError("parallel", {.what = "a parameter that is not sharded here",
                                   .expected = "one of the module that was set up",
                                   .got = name});
  }

  /// Nothing where it is not sharded here.
  std::optional<PieceRef> find(const at::Tensor& parameter) const {
    const auto found = by_tensor.find(parameter.unsafeGetTensorImpl());
    return found == by_tensor.end() ? std::nullopt : std::optional(found->second);
  }

  std::vector<PieceRef> refs_of(std::span<const NamedParameter> parameters) const {
    std::vector<PieceRef> refs;
    for (const auto& parameter : parameters) refs.push_back(piece_of(parameter.name));
    return refs;
  }

  void require_room(std::uint64_t bytes_of_rank, const char* of_what) const {
    const auto ranks = static_cast<std::uint64_t>(ranks_on_disk);
    offload::check_room(plan.offload->directory,
                        {.bytes = bytes_of_rank * ranks,
                         .what = std::string(of_what) + " of " + std::to_string(ranks) + " rank(s)"});
  }

  void check_lives() const {
    if (is_over)
      throw ConfigError("parallel", {.what = "the module is not sharded any more",
                                     .expected = "an engine that restore() has not ended",
                                     .hint = "shard it anew"});
  }

  void begin(const at::Tensor& loss) {
    check_lives();
    lists->check();
    for (const auto& unit : units) {
      for (const auto& flat : unit.flats) flat->check_members();
    }
    residency.end_hold();
    gradients->begin(loss);
  }

  void finish() {
    gradients->finish();
    end_pass();
  }

  void abandon() noexcept {
    if (gradients) gradients->abandon();
    try {
      end_pass();
    } catch (...) {  // the error that led here is on its way
    }
  }

  void end_pass() {
    residency.release_passing();
    residency.end_pass();
  }

  void broadcast_buffers() const {
    if (!plan.broadcast_buffers || states.buffers.empty() || comm.size() == 1) return;
    std::vector<at::Tensor> buffers;
    for (const auto& buffer : states.buffers) buffers.push_back(buffer.tensor);
    broadcast_coalesced(comm, buffers);
  }

  ShardingPlan plan;
  Communicator comm;
  ModuleStates states;
  std::optional<ModuleLists> lists;                 // once all is cut
  std::shared_ptr<const StateSwap> swap;            // these two before the mesh: who is refused leaves
  std::unique_ptr<OffloadedActivations> offloaded;  // nobody connecting
  ShardMesh mesh;
  ShardMesh whole_mesh;  // of what is not sharded
  int ranks_on_disk;     // that offload there
  ShardMemory memory;
  MemoryPool pool;
  std::vector<ShardedUnit> units;
  Residency residency;
  std::optional<GradientReduction> gradients;
  std::optional<BlockSegments> checkpointed;
  std::shared_ptr<PieceTable> pieces = std::make_shared<PieceTable>();  // exchanges ask whether it is there
  std::unordered_map<const at::TensorImpl*, PieceRef> by_tensor;
  std::vector<std::pair<at::Tensor, at::ScalarType>> cast_from;  // buffers, and what they were
  int local_scopes = 0;
  bool is_over = false;
};

ShardedEngine::ShardedEngine(const torch::nn::Module& module, Communicator comm, const Fsdp& options,
                             int ranks_per_node)
    : ShardedEngine(module, plan_of(options, comm.size(), ranks_per_node), comm) {}

ShardedEngine::ShardedEngine(const torch::nn::Module& module, const ShardingPlan& plan, Communicator comm)
    : impl_(std::make_unique<Impl>(module, std::move(comm), plan)) {}

ShardedEngine::~ShardedEngine() = default;

std::vector<NamedParameter> ShardedEngine::parameters() const {
  std::vector<NamedParameter> all;
  for (const auto& [name, tensor] : impl_->states.parameters) {
    const auto found = impl_->pieces->find(name);
    if (found == impl_->pieces->end()) continue;
    const auto& piece = found->second.flat->piece(found->second.member);
    if (piece.requires_grad()) all.push_back({name, piece});
  }
  return all;
}

std::shared_ptr<PieceExchange> ShardedEngine::exchange() const {
  return std::make_shared<ShardExchange>(impl_->pieces, impl_->mesh.gather);
}

void ShardedEngine::offload_state(Optimizer& optimizer) const {
  const auto& offload = impl_->plan.offload;
  if (!offload) return;
  auto& gradients = *impl_->gradients;
  const auto gradient_bytes =
      offload->parameters ? static_cast<std::uint64_t>(gradients.bytes_to_take()) : std::uint64_t{0};
  if (offload->optimizer) {
    auto where = *impl_->swap;
    where.ranks = impl_->ranks_on_disk;
    where.other_bytes = gradient_bytes;
    optimizer.swap_state(where);
  } else {
    impl_->require_room(gradient_bytes, "the gradients");
  }
  impl_->comm.barrier();  // all have seen how much room there is before any takes some
  if (offload->parameters) gradients.take_memory();
  if (offload->optimizer) (void)optimizer.state();  // makes it, and its file
}

void ShardedEngine::backward(const at::Tensor& loss, const BackwardOptions& options) {
  ShardedEngine* const self = this;
  backward(loss, std::span(&self, 1), options);
}

void ShardedEngine::backward(const at::Tensor& loss, std::span<ShardedEngine* const> engines,
                             const BackwardOptions& options) {
  std::vector<Impl*> averaging;
  for (const auto* engine : engines) {
    if (engine->impl_->local_scopes == 0) averaging.push_back(engine->impl_.get());
  }
  if (!averaging.empty() && options.create_graph) refuse_create_graph();
  try {
    for (auto* impl : averaging) impl->begin(loss);
    loss.backward(options.gradient, options.retain_graph, options.create_graph);
    for (auto* impl : averaging) impl->finish();
  } catch (...) {
    for (auto* impl : averaging) impl->abandon();
    throw;
  }
}

void ShardedEngine::after_step() {
  impl_->residency.release_after_step();
  impl_->broadcast_buffers();
}

ShardedEngine::NoSync::NoSync(ShardedEngine& engine) : engine_(engine) { ++engine_.impl_->local_scopes; }
ShardedEngine::NoSync::~NoSync() { --engine_.impl_->local_scopes; }

void ShardedEngine::drop_accumulated_gradients() {
  if (impl_->gradients) impl_->gradients->drop_accumulated();
}

void ShardedEngine::drop_accumulated_gradients(std::span<const NamedParameter> parameters) {
  for (const auto& [flat, member] : impl_->refs_of(parameters))
    flat->members()[member].tensor.mutable_grad().reset();
}

double ShardedEngine::grad_norm(std::span<const NamedParameter> parameters, double norm_type) const {
  return sharded_grad_norm(impl_->refs_of(parameters), norm_type, impl_->mesh.gather);
}

double ShardedEngine::clip_grad_norm(std::span<const NamedParameter> parameters, double max_norm,
                                     double norm_type, bool error_if_nonfinite) const {
  std::vector<at::Tensor> pieces;
  for (const auto& parameter : parameters) pieces.push_back(parameter.tensor);
  return scale_gradients_to(pieces, grad_norm(parameters, norm_type), max_norm, error_if_nonfinite);
}

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

std::optional<TensorShard> ShardedEngine::shard_of(const at::Tensor& parameter, ShardCopies copies) const {
  const auto found = impl_->find(parameter);
  if (!found) return std::nullopt;
  return shard_in(*found, found->flat->piece(found->member).detach(), copies);
}

TensorShard ShardedEngine::shard_of(const std::string& name, const at::Tensor& elements,
                                    ShardCopies copies) const {
  return shard_in(impl_->piece_of(name), elements, copies);
}

void ShardedEngine::forget_errors() { impl_->gradients->forget_past(); }

void ShardedEngine::forget_gathered() { impl_->residency.release_all(); }

void ShardedEngine::restore() {
  impl_->check_lives();
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

void ShardedEngine::keep_held(std::span<const at::Tensor> parameters) {
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

bool ShardedEngine::still_holds(const torch::nn::Module& module) const {
  const ModuleStates now(module);
  const auto& then = impl_->states.parameters;
  const auto is_same = [](const NamedTensor& a, const NamedTensor& b) {
    return a.name == b.name && a.tensor.is_same(b.tensor);
  };
  const auto is_intact = [](const ShardedUnit& unit) {
    return std::ranges::all_of(unit.flats, [](const auto& flat) { return flat->is_intact(); });
  };
  return !impl_->is_over && std::ranges::equal(now.parameters, then, is_same) &&
         std::ranges::all_of(impl_->units, is_intact);
}

at::Tensor ShardedEngine::in_own_type(const at::Tensor& buffer) const {
  for (const auto& [cast, dtype] : impl_->cast_from) {
    if (cast.is_same(buffer)) return buffer.detach().to(dtype);
  }
  return buffer.detach();
}

ShardedStats ShardedEngine::stats() const {
  auto stats = impl_->residency.stats();
  if (impl_->gradients) {
    stats.reductions = impl_->gradients->reductions();
    stats.reduced_bytes = impl_->gradients->reduced_bytes();
    stats.gradient_bytes = impl_->gradients->average_bytes();
  }
  for (const auto& [name, ref] : *impl_->pieces)
    stats.shard_bytes += static_cast<std::int64_t>(ref.flat->piece(ref.member).nbytes());
  for (const auto& unit : impl_->units) {
    for (const auto& flat : unit.flats) {
      stats.secondary_bytes += flat->secondary_bytes();
      stats.narrow_bytes += flat->narrow_bytes();
    }
  }
  impl_->mesh.count_sent(stats);
  if (impl_->has_whole_group()) impl_->whole_mesh.count_sent(stats);
  return stats;
}

std::vector<std::string> ShardedEngine::unit_names() const {
  std::vector<std::string> names;
  for (const auto& unit : impl_->units) names.push_back(unit.name);
  return names;
}

bool ShardedEngine::is_over() const { return impl_->is_over; }

int ShardedEngine::shards() const { return impl_->mesh.shards(); }

const ShardingPlan& ShardedEngine::plan() const { return impl_->plan; }

const Communicator& ShardedEngine::communicator() const { return impl_->comm; }

}  // namespace lockstep
