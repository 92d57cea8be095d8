// Which units are gathered: those in use, the one that is expected next, and as few others as possible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/parallel/dispatch/tensor_mark.h>
#include <lockstep/parallel/sharded/sharding_plan.h>

#include "parallel/sharded/flat_parameter.h"
#include "parallel/sharded/shard_memory.h"

namespace lockstep::detail {

// A unit: parameters that are gathered and released together, such as those of one block of a model.

enum class UnitState {
  kSharded,    ///< its parameters have no memory
  kGathering,  ///< on their way
  kLive        ///< there
};

struct ShardedUnit {
  std::string name;               ///< the module's, such as "layers.3"; empty for what belongs to no block
  std::int64_t number = 0;        ///< equal on all ranks, from 1
  std::int64_t elements = 0;      ///< of the rows that a gather puts together
  bool is_root = false;           ///< holds what belongs to no block: often used first and last
  bool keeps_until_step = false;  ///< stays gathered, once it is, until parameters change
  bool is_spread = false;         ///< has parameters from all over the model: its gradients come last
  std::vector<std::unique_ptr<FlatParameter>> flats = {};  ///< one per dtype, trained and frozen apart
  UnitState state = UnitState::kSharded;
};

/// Where a member of a unit is to be found by its tag.
struct MemberPlace {
  std::size_t unit;
  std::size_t flat;
  std::size_t member;
};

// Which unit comes next: what followed the last time that the same two units were used one after the other.

/// In what a unit is used: the order differs between them.
enum class UsePhase : std::uint8_t { kEvaluation, kForward, kBackward };

/// Remembers sequences of units, in any mixture of passes. Ranks that use the same units in the same order
/// predict alike.
class UsePredictor {
 public:
  /// `unit` is used now, after others; returns what is expected next.
  std::optional<std::size_t> next_after(std::size_t unit, UsePhase phase);

  /// What comes now does not follow on what was.
  void break_off() { last_.reset(); }

 private:
  // Two units that follow on each other, and where.
  using Context = std::uint64_t;

  std::optional<std::size_t> unit_;  // the last one
  std::optional<Context> last_;      // that it was used in
  std::unordered_map<Context, std::size_t> next_;
};

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

  /// Throws `error` again with the names of the units that it knows by their numbers, and what to do.
  [[noreturn]] void refuse_mismatch(const CollectiveMismatch& error) const;

  ShardedStats stats() const;

 private:
  template <class Gather>
  void name_units(const Gather& gather);
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
  std::string asked_for() const;

  std::vector<ShardedUnit>& units_;
  MemoryPool& pool_;
  ResidencyRules rules_;
  std::vector<MemberPlace> members_;
  std::function<void(std::size_t)> on_write_;
  std::vector<std::size_t> present_;  // units that are gathered or on their way
  bool holds_all_ = false;
  bool has_held_all_ = false;               // since release_all()
  std::vector<std::size_t> pinned_;         // those that the operator needs
  std::vector<const std::string*> users_;   // for each of them a parameter that it uses
  const std::string* parameter_ = nullptr;  // the one that is gathered for an operator
  std::optional<std::size_t> current_;
  std::optional<std::size_t> next_;  // foreseen in backward
  UsePredictor predictor_;
  ShardedStats stats_;
};

}  // namespace lockstep::detail
