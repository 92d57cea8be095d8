// From planned units to what a rank holds of them: which parameters lie side by side, and in which types.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_set>
#include <vector>

#include <lockstep/base/export.h>

#include "parallel/sharded/residency.h"
#include "parallel/sharded/unit_plan.h"

namespace lockstep::detail {

/// Exported for tests.
class LOCKSTEP_API UnitCutter {
 public:
  /// `whole_mesh`: of units that are not sharded. `own_dtype`: tensors that compute in their own type. All
  /// outlive it.
  UnitCutter(const ShardingPlan& plan, const ShardMesh& mesh, const ShardMesh& whole_mesh,
             const std::unordered_set<const at::TensorImpl*>& own_dtype)
      : plan_(plan), mesh_(mesh), whole_mesh_(whole_mesh), own_dtype_(own_dtype) {}

  /// Bytes of a rank's shards and of their copies in 16 bits, about. Local.
  std::uint64_t bytes_of_shards(std::span<const PlannedUnit> planned) const;

  /// Adds to `units` what this rank holds of `planned`, in `memory`, and returns where its parameters are, by
  /// the tags that `handler` is told. A unit's memory is gone before the next one's shard is made. Does not
  /// communicate, but for `fetch`.
  std::vector<MemberPlace> cut(std::vector<PlannedUnit> planned, std::vector<ShardedUnit>& units,
                               UseHandler& handler, ShardMemory& memory, const FetchParameter& fetch) const;

 private:
  bool keeps_until_step(const PlannedUnit& unit) const {
    return unit.is_persistent || plan_.keep == KeepGathered::kUntilStep;
  }
  const ShardMesh& mesh_of(const PlannedUnit& unit) const { return unit.is_whole ? whole_mesh_ : mesh_; }
  ShardedUnit empty_unit(const PlannedUnit& planned, std::size_t index, bool is_only) const;
  std::vector<std::vector<ShardedTensor>> rows_of(const PlannedUnit& unit) const;
  ComputeDtype compute_dtype(const ShardedTensor& member) const;
  ComputeDtype compute_in(const PlannedUnit& unit, const ShardedTensor& member) const;
  std::uint64_t bytes_of_shard(const PlannedUnit& unit, const ShardedTensor& member) const;

  const ShardingPlan& plan_;
  const ShardMesh& mesh_;
  const ShardMesh& whole_mesh_;
  const std::unordered_set<const at::TensorImpl*>& own_dtype_;
};

}  // namespace lockstep::detail
