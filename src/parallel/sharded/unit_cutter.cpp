#include "parallel/sharded/unit_cutter.h"

#include <algorithm>
#include <utility>

#include <lockstep/torch.h>

namespace lockstep::detail {
namespace {

using Members = std::vector<ShardedTensor>;

bool travels_alike(const ComputeDtype& a, const ComputeDtype& b) {
  return a.dtype == b.dtype && a.travel.is_quantized == b.travel.is_quantized &&
         a.reduces_quantized == b.reduces_quantized;
}

// Those of one dtype, trained or not, in the order of members.
template <class ComputeOf>
std::vector<Members> by_kind(const Members& members, const ComputeOf& compute_of) {
  std::vector<Members> kinds;
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
std::vector<Members> in_buckets(Members members, std::int64_t most) {
  std::vector<Members> buckets;
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

}  // namespace

ComputeDtype UnitCutter::compute_dtype(const ShardedTensor& member) const {
  if (own_dtype_.contains(member.tensor.unsafeGetTensorImpl())) return {.master = plan_.master_dtype};
  const auto& mixed = plan_.mixed_precision;
  return {
      .dtype = mixed.param_dtype, .casts_arguments = mixed.cast_forward_inputs, .master = plan_.master_dtype};
}

ComputeDtype UnitCutter::compute_in(const PlannedUnit& unit, const ShardedTensor& member) const {
  if (unit.is_whole) return {.master = plan_.master_dtype};
  auto compute = compute_dtype(member);
  compute.keeps_row = keeps_until_step(unit);
  compute.travel.has_secondary = !unit.is_persistent && plan_.keep != KeepGathered::kUntilStep;
  if (mesh_.shards() == 1 || member.tensor.dim() < 2) return compute;
  const auto& options = plan_.zero_plus_plus;
  const bool is_trained = member.tensor.requires_grad();
  compute.travel.is_quantized =
      !unit.is_persistent && (options.quantized_weights || (options.quantized_frozen_weights && !is_trained));
  compute.reduces_quantized = options.quantized_gradients && is_trained;
  compute.keeps_row = compute.keeps_row && !compute.travel.is_quantized;  // others see other values
  return compute;
}

std::uint64_t UnitCutter::bytes_of_shard(const PlannedUnit& unit, const ShardedTensor& member) const {
  const auto& parameter = member.tensor;
  const auto& over = mesh_of(unit);
  const auto compute = compute_in(unit, member);
  const auto master = compute.master.value_or(parameter.scalar_type());
  const auto computed = compute.dtype.value_or(parameter.scalar_type());
  const bool has_copy =
      has_narrow_shard(master, computed, parameter.requires_grad(), compute.travel.is_quantized, over);
  const auto bytes_of_element = c10::elementSize(master) + (has_copy ? c10::elementSize(computed) : 0);
  return static_cast<std::uint64_t>(parameter.numel()) * bytes_of_element /
         static_cast<std::uint64_t>(over.shards());
}

std::uint64_t UnitCutter::bytes_of_shards(std::span<const PlannedUnit> planned) const {
  std::uint64_t bytes = 0;
  for (const auto& unit : planned)
    for (const auto& member : unit.members) bytes += bytes_of_shard(unit, member);
  return bytes;
}

std::vector<std::vector<ShardedTensor>> UnitCutter::rows_of(const PlannedUnit& unit) const {
  std::vector<Members> rows;
  for (auto& kind : by_kind(unit.members, [&](const auto& member) { return compute_in(unit, member); }))
    for (auto& bucket : in_buckets(std::move(kind), plan_.most_bucket_elements))
      rows.push_back(std::move(bucket));
  return rows;
}

ShardedUnit UnitCutter::empty_unit(const PlannedUnit& planned, std::size_t index, bool is_only) const {
  return {.name = planned.name,
          .number = static_cast<std::int64_t>(index) + 1,
          .is_root = planned.name.empty() && !is_only,
          .keeps_until_step = keeps_until_step(planned),
          .is_spread = planned.is_persistent || planned.name.empty()};
}

std::vector<MemberPlace> UnitCutter::cut(std::vector<PlannedUnit> planned, std::vector<ShardedUnit>& units,
                                         UseHandler& handler, ShardMemory& memory,
                                         const FetchParameter& fetch) const {
  std::vector<MemberPlace> places;
  for (auto& unit_to_be : planned) {
    if (unit_to_be.members.empty()) continue;
    auto unit = empty_unit(unit_to_be, units.size(), planned.size() == 1);
    for (auto& row : rows_of(unit_to_be)) {
      const auto compute = compute_in(unit_to_be, row.front());
      unit.flats.push_back(std::make_unique<FlatParameter>(std::move(row), mesh_of(unit_to_be), compute,
                                                           handler, places.size(), memory, fetch));
      for (std::size_t i = 0; i < unit.flats.back()->members().size(); ++i)
        places.push_back({.unit = units.size(), .flat = unit.flats.size() - 1, .member = i});
    }
    units.push_back(std::move(unit));
    unit_to_be.members.clear();
  }
  return places;
}

}  // namespace lockstep::detail
