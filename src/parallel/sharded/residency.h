// Which units are gathered: those in use, the one that is expected next, and as few others as possible.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/parallel/dispatch/tensor_mark.h>
#include <lockstep/parallel/sharded/sharded_stats.h>
#include <lockstep/parallel/sharded/sharding_plan.h>

#include "parallel/sharded/memory_pool.h"
#include "parallel/sharded/sharded_unit.h"
#include "parallel/sharded/use_predictor.h"

namespace lockstep::detail {

/// What a plan says about it; see there.
struct ResidencyRules {
  KeepGathered keep = KeepGathered::kWhileUsed;
  std::int64_t max_live_elements = 0;
  bool prefetches_forward = true;
  BackwardPrefetch backward_prefetch = BackwardPrefetch::kBackwardPre;
  std::int64_t most_prefetched_elements = ShardingPlan::kNoLimit;
  bool limits_gathers = true;     ///< what is not needed goes before anything else comes
  bool releases_at_once = false;  ///< after every operator; memory is overwritten
};

/// Gathers units when operators use them, ahead of that where it can be foreseen, and releases them. Used
/// by the thread that trains. Gathering is Collective: all ranks use units in the same order.
class Residency final : public UseHandler {
 public:
  Residency(std::vector<ShardedUnit>& units, MemoryPool& pool, ResidencyRules rules);

  /// Whose members have tags from 0 on. Before the first use. `on_write` is told the tag of each that an
  /// operator writes to.
  void set_members(std::vector<MemberPlace> members, std::function<void(std::size_t)> on_write);

  void before_use(OperatorCall& call, std::span<const TensorUse> uses) override;
  void replace(OperatorCall& call, std::span<const TensorUse> uses) override;

  /// Gathers everything, until release_all() or end_hold(). Collective.
  void gather_all();
  /// Units come and go again as they are used: a backward that releases them begins.
  void end_hold() { holds_all_ = false; }

  /// Gathers a unit for as long as nothing else is used. Collective.
  void use(std::size_t unit);

  /// The unit's gradients are complete: it goes, and the next one may come. Collective.
  void end_backward_of(std::size_t unit);

  /// Releases what is gathered; parameters may change now. What was written to them is kept.
  void release_all();
  /// The same, where nothing but a step may have changed parameters.
  void release_after_step();

  /// Releases what is not kept until parameters change, and what is on its way: it may come to where a step
  /// writes.
  void release_passing();

  /// A pass is over; what follows is another story.
  void end_pass() { predictor_.break_off(); }

  ShardedStats stats() const;

 private:
  bool is_pinned(std::size_t unit) const;
  UsePhase phase() const;
  void make_live(std::size_t unit);
  void start(std::size_t unit);
  void release(std::size_t unit);
  void release_present();
  template <class Forget>
  void release_and(const Forget& forget);
  void release_unneeded(std::optional<std::size_t> next);
  bool stands_apart(std::size_t unit) const;
  bool may_prefetch(std::size_t unit, UsePhase phase) const;
  std::int64_t live_elements() const;
  void forget_uses();
  [[noreturn]] void refuse_mismatch(const CollectiveMismatch& error) const;

  std::vector<ShardedUnit>& units_;
  MemoryPool& pool_;
  ResidencyRules rules_;
  std::vector<MemberPlace> members_;
  std::function<void(std::size_t)> on_write_;
  std::vector<std::size_t> present_;  // units that are gathered or on their way
  bool holds_all_ = false;
  bool has_held_all_ = false;        // since release_all()
  std::vector<std::size_t> pinned_;  // those that the operator needs
  std::optional<std::size_t> current_;
  std::optional<std::size_t> next_;  // foreseen in backward
  UsePredictor predictor_;
  ShardedStats stats_;
};

}  // namespace lockstep::detail
