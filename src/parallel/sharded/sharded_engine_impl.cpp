// How a ShardedEngine is set up from its plan: meshes, units, buffers; and what ranks compare.
#include "parallel/module_states.h"
#include "parallel/sharded/sharded_engine.h"

#include <algorithm>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/comm/packed_collectives.h>
#include <lockstep/parallel/sharded/sharding_plan.h>
#include <lockstep/torch.h>

#include "offload/swap_folder.h"
#include "optim/pieces.h"
#include "parallel/deferred/deferred_tensor.h"
#include "parallel/sharded/shardable.h"
#include "parallel/sharded/unit_cutter.h"

namespace lockstep {

using namespace detail;

namespace {

ResidencyRules rules_of(const ShardingPlan& plan) {
  return {.keep = plan.keep,
          .max_live_elements = plan.max_live_elements,
          .prefetches_forward = plan.forward_prefetch,
          .backward_prefetch = plan.backward_prefetch,
          .most_prefetched_elements = plan.most_prefetched_elements,
          .limits_gathers = plan.limit_all_gathers,
          .releases_at_once = plan.release_after_every_operator};
}

// Whose bytes are on disk, or are stepped from there, is stepped by the CPU.
bool keeps_shards_on_host(const ShardingPlan& plan) {
  return plan.offload_to_host || (plan.offload && !plan.device->is_cpu());
}

constexpr auto kChangeHint =
    "restore_sharded() it before it is changed, and set it up again then; on all ranks";

}  // namespace

ShardedEngine::Impl::Impl(const torch::nn::Module& module, Communicator ranks, const ShardingPlan& chosen)
    : plan(placed_on(chosen, chosen.device ? *chosen.device : device_of(ModuleStates(module)))),
      comm(std::move(ranks)),
      states(module),
      swap(plan.offload ? make_swap(*plan.offload, comm.rank()) : nullptr),
      offloaded(plan.activation_offload ? std::make_unique<OffloadedActivations>(
                                              module, *plan.activation_offload, comm.rank(), *plan.device)
                                        : nullptr),
      mesh(checked_mesh()),
      whole_mesh(make_whole_mesh()),
      ranks_on_disk(swap ? detail::ranks_on_disk(comm, plan.offload->directory) : 0),
      device(*plan.device),
      memory(device, plan.offload && plan.offload->parameters ? swap : nullptr, keeps_shards_on_host(plan)),
      pool(device),
      residency(units, pool, rules_of(chosen)) {
  const MemoryAtOnce at_once;
  if (plan.sync_module_states) compare_states(states, comm);
  const LateParameters late(states, comm, plan.sync_module_states);
  auto planned = plan_units(module, plan.units, plan.whole_modules, plan.units_option);
  const auto note = note_on_units(module, plan.units, plan.units_option);
  if (!note.empty() && comm.size() > 1 && comm.rank() == 0) warn_once("sharded.units " + note, note);
  const auto& checkpointing = plan.activation_checkpointing;
  if (checkpointing.is_on())
    checkpointed.emplace(detail::plan_blocks(module, checkpointing.policy().value_or(plan.units)));
  const auto own_dtype = batch_norm_tensors(module);
  cast_buffers(own_dtype);
  cut(with_persistent_unit(std::move(planned), plan), own_dtype, late);
  gradients.emplace(units, pool, residency, plan.mixed_precision, mesh, plan.gradient_op,
                    plan.zero_plus_plus);
  mark_pieces_for_optimizers();
  lists.emplace(module, states, ChangeWords{.set_up_for = "sharding", .hint = kChangeHint});
  mark_policies_again(module);
  if (checkpointed) checkpointed->mark_again();
  if (offloaded) offloaded->mark_again();
}

ShardMesh ShardedEngine::Impl::checked_mesh() const {
  require_same_plan(plan, comm);
  if (comm.size() > 1) require_writable(states);
  check_shardable(states);
  check_plan(plan, comm.size());
  const auto& options = plan.zero_plus_plus;
  if (plan.shards == 1) return make_shard_mesh(comm, 1);
  return make_shard_mesh(comm, plan.shards,
                         {.gather = options.secondary_shards,
                          .reduce = options.quantized_gradients ? options.gradient_neighbours : 1});
}

// What is whole travels in a group of its own: the caller may use `comm` within backward.
ShardMesh ShardedEngine::Impl::make_whole_mesh() const {
  return {.replicate = has_whole_group() ? comm.split(0).value() : mesh.replicate};
}

bool ShardedEngine::Impl::has_whole_group() const { return mesh.shards() > 1 && plan.whole_modules; }

void ShardedEngine::Impl::cast_buffers(const std::unordered_set<const at::TensorImpl*>& own_dtype) {
  const auto dtype = plan.mixed_precision.buffer_dtype;
  if (!dtype) return;
  const torch::NoGradGuard no_grad;
  for (auto& [name, buffer] : states.buffers) {
    if (!buffer.is_floating_point() || own_dtype.contains(buffer.unsafeGetTensorImpl())) continue;
    cast_from.emplace_back(buffer, buffer.scalar_type());
    buffer.set_data(buffer.to(*dtype));
  }
}

// Members lose their memory one after the other: a disk that is full amid them would cost their values.
void ShardedEngine::Impl::cut(std::vector<PlannedUnit> planned,
                              const std::unordered_set<const at::TensorImpl*>& own_dtype,
                              const LateParameters& late) {
  const UnitCutter cutter(plan, mesh, whole_mesh, own_dtype);
  if (memory.is_on_disk()) {
    require_room(cutter.bytes_of_shards(planned), "the shards");
    comm.barrier();  // all have seen how much room there is before any takes some
  }
  const auto fetch = [&late](const at::Tensor& parameter) { late.fetch(parameter); };
  watch_replicas(cutter.cut(std::move(planned), units, residency, memory, fetch));
  for (const auto& unit : units) {
    for (const auto& flat : unit.flats) {
      for (std::size_t i = 0; i < flat->members().size(); ++i) enter({flat.get(), i});
    }
  }
}

void ShardedEngine::Impl::watch_replicas(std::vector<MemberPlace> members) {
  const auto flat_of = [this](const MemberPlace& place) -> const FlatParameter& {
    return *units[place.unit].flats[place.flat];
  };
  const auto has_copies = [&](const auto& place) { return flat_of(place).mesh().shards() < comm.size(); };
  if (std::ranges::any_of(members, has_copies)) {
    replicas.emplace(comm, members.size(), [members, flat_of](std::size_t tag) {
      const auto& place = members[tag];
      const auto& flat = flat_of(place);
      return Replica{.name = flat.members()[place.member].name,
                     .tensor = flat.piece(place.member),
                     .shards = flat.mesh().shards()};
    });
  }
  residency.set_members(std::move(members), [this](std::size_t tag) {
    if (replicas) once_per_step([this, tag] { replicas->note_write(tag); });
  });
}

void ShardedEngine::Impl::compare_trained() const {
  if (comm.size() == 1) return;
  std::vector<std::string> lines;
  for (const auto& [name, parameter] : states.parameters)
    lines.push_back("parameter " + name + (parameter.requires_grad() ? " trained" : " frozen"));
  require_equal_across_ranks(
      lines, comm,
      {.what = "the ranks do not train the same parameters",
       .hint = "requires_grad_() is for all ranks alike: of a parameter that is frozen on one of "
               "them, only the others' parts would go on"});
}

void ShardedEngine::Impl::enter(const PieceRef& ref) {
  const auto& member = ref.flat->members()[ref.member];
  pieces->emplace(member.name, ref);
  by_tensor.emplace(member.tensor.unsafeGetTensorImpl(), ref);
}

void ShardedEngine::Impl::mark_pieces_for_optimizers() const {
  std::vector<Piece> all;
  for (const auto& [name, ref] : *pieces)
    all.push_back({.elements = ref.flat->piece(ref.member), .narrow = ref.flat->narrow_copy(ref.member)});
  mark_pieces(all);
}

const PieceRef& ShardedEngine::Impl::piece_of(const std::string& name) const {
  const auto found = pieces->find(name);
  if (found != pieces->end()) return found->second;
  throw ConfigError("parallel", {.what = "a parameter that is not sharded here",
                                 .expected = "one of the module that was set up",
                                 .got = name});
}

std::optional<PieceRef> ShardedEngine::Impl::find(const at::Tensor& parameter) const {
  const auto found = by_tensor.find(parameter.unsafeGetTensorImpl());
  return found == by_tensor.end() ? std::nullopt : std::optional(found->second);
}

PieceRef ShardedEngine::Impl::piece_of(const at::Tensor& parameter) const {
  if (const auto found = find(parameter)) return *found;
  throw ConfigError("parallel", {.what = "a parameter that is not sharded here",
                                 .expected = "one of the module that was set up",
                                 .got = c10::str("a tensor of shape ", parameter.sizes())});
}

std::vector<PieceRef> ShardedEngine::Impl::refs_of(std::span<const NamedParameter> parameters) const {
  std::vector<PieceRef> refs;
  for (const auto& parameter : parameters) refs.push_back(piece_of(parameter.name));
  return refs;
}

void ShardedEngine::Impl::require_room(std::uint64_t bytes_of_rank, const char* of_what) const {
  const auto ranks = static_cast<std::uint64_t>(ranks_on_disk);
  offload::check_room(plan.offload->directory,
                      {.bytes = bytes_of_rank * ranks,
                       .what = std::string(of_what) + " of " + std::to_string(ranks) + " rank(s)"});
}

void ShardedEngine::Impl::check_lives() const {
  if (is_over)
    throw ConfigError("parallel", {.what = "the module is not sharded any more",
                                   .expected = "an engine that restore() has not ended",
                                   .hint = "shard it anew"});
}

void ShardedEngine::Impl::check_module() {
  lists->check();
  for (const auto& unit : units) {
    for (const auto& flat : unit.flats) flat->check_members();
  }
}

void ShardedEngine::Impl::begin(const at::Tensor& loss) {
  check_lives();
  check_module();
  if (auto* const recording = StepRecording::current()) recording->before_replay([this] { check_module(); });
  residency.end_hold();
  gradients->begin(loss);
}

void ShardedEngine::Impl::finish() {
  gradients->finish();
  await_device();
  end_pass();
}

void ShardedEngine::Impl::await_device() {
  memory.await_device();
  if (memory.is_on_host()) pool.forget_uses();
}

void ShardedEngine::Impl::abandon() noexcept {
  if (gradients) gradients->abandon();
  try {
    end_pass();
  } catch (...) {  // the error that led here is on its way
  }
}

void ShardedEngine::Impl::end_pass() {
  residency.release_passing();
  residency.end_pass();
}

void ShardedEngine::Impl::forget_computed(bool is_given_up) noexcept {
  if (device.is_cpu() || is_over) return;
  try {
    residency.release_all();
  } catch (const std::exception&) {  // of a gather that has failed: the next one says so
  }
  pool.forget_peak();
  if (!is_given_up || !gradients) return;
  gradients->forget_flags();
  gradients->drop_accumulated();
}

void ShardedEngine::Impl::broadcast_buffers() const {
  if (!plan.broadcast_buffers || states.buffers.empty() || comm.size() == 1) return;
  std::vector<at::Tensor> buffers;
  for (const auto& buffer : states.buffers) buffers.push_back(buffer.tensor);
  broadcast_coalesced(comm, buffers);
}

}  // namespace lockstep
