#include "parallel/sharded/residency.h"
#include "device/step_recording.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <utility>

#include <c10/core/ScalarType.h>

#include <lockstep/base/error.h>
#include <lockstep/parallel/dispatch/tensor_mark.h>
#include <lockstep/torch.h>

#include "parallel/dispatch/backward_thread.h"
#include "parallel/dispatch/operator_dispatch.h"

namespace lockstep::detail {
namespace {

bool must_cast(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.defined() && tensor.is_floating_point() && tensor.scalar_type() != dtype;
}

void cast_list(c10::IValue& argument, at::ScalarType dtype) {
  auto tensors = argument.toTensorVector();
  bool is_changed = false;
  for (auto& tensor : tensors) {
    if (!must_cast(tensor, dtype)) continue;
    tensor = tensor.to(dtype);
    is_changed = true;
  }
  if (is_changed) argument = c10::IValue(std::move(tensors));
}

// Statistics are written to, though schemas do not say so.
bool is_statistic(const c10::Argument& argument) { return argument.name().starts_with("running_"); }

// Casts the floating-point tensors among the arguments of `call` to `dtype`, those in lists, too; not those
// that it writes to. Differentiable: gradients come back in the type of before.
void cast_arguments(OperatorCall& call, at::ScalarType dtype) {
  const auto written = operator_info(call.op()).written;
  if (written != 0) return;
  const auto& schema = call.op().schema().arguments();
  const auto arguments = call.arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    auto& argument = arguments[i];
    if (is_statistic(schema[i])) continue;
    if (argument.isTensor() && must_cast(argument.toTensor(), dtype)) {
      argument = argument.toTensor().to(dtype);
    } else if (argument.isTensorList()) {
      cast_list(argument, dtype);
    }
  }
}

}  // namespace

std::optional<std::size_t> UsePredictor::next_after(std::size_t unit, UsePhase phase) {
  const auto before = last_ ? *unit_ + 1 : 0;
  if (last_) next_[*last_] = unit;
  const Context context =
      (static_cast<Context>(phase) << 62) | (static_cast<Context>(before) << 31) | static_cast<Context>(unit);
  unit_ = unit;
  last_ = context;
  const auto found = next_.find(context);
  return found == next_.end() ? std::nullopt : std::optional(found->second);
}

namespace {

bool is_in(const std::vector<std::size_t>& units, std::size_t unit) {
  return std::ranges::find(units, unit) != units.end();
}

// Whether `text` has `word`, and not as the beginning of a longer number.
bool names(const std::string& text, const std::string& word) {
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const auto end = at + word.size();
    if (end == text.size() || std::isxdigit(static_cast<unsigned char>(text[end])) == 0) return true;
  }
  return false;
}

std::int64_t elements_of(const ShardedUnit& unit) {
  std::int64_t elements = 0;
  for (const auto& flat : unit.flats) elements += flat->is_resident() ? 0 : flat->layout().total_elements();
  return elements;
}

}  // namespace

Residency::Residency(std::vector<ShardedUnit>& units, MemoryPool& pool, ResidencyRules rules)
    : units_(units), pool_(pool), rules_(rules) {}

void Residency::set_members(std::vector<MemberPlace> members, std::function<void(std::size_t)> on_write) {
  members_ = std::move(members);
  on_write_ = std::move(on_write);
  for (auto& unit : units_) {
    const bool is_resident =
        std::ranges::all_of(unit.flats, [](const auto& flat) { return flat->is_resident(); });
    if (is_resident) unit.state = UnitState::kLive;
    unit.elements = elements_of(unit);
  }
}

UsePhase Residency::phase() const {
  if (in_backward()) return UsePhase::kBackward;
  return at::GradMode::is_enabled() ? UsePhase::kForward : UsePhase::kEvaluation;
}

// Units that one operator uses together are all there before it runs.
void Residency::before_use(OperatorCall& call, std::span<const TensorUse> uses) {
  pinned_.clear();
  users_.clear();
  std::optional<at::ScalarType> cast;
  for (const auto& use : uses) {
    const auto& place = members_[use.mark->tag()];
    auto& unit = units_[place.unit];
    auto& flat = *unit.flats[place.flat];
    if (flat.casts_arguments()) cast = flat.dtype();
    if (flat.is_held(place.member)) {
      refuse_in_recording("a parameter that is held whole");
      continue;
    }
    if (is_in(pinned_, place.unit)) continue;
    pinned_.push_back(place.unit);
    users_.push_back(&flat.members()[place.member].name);
  }
  name_units([&] {
    for (std::size_t i = 0; i < pinned_.size(); ++i) {
      parameter_ = users_[i];
      use(pinned_[i]);
    }
  });
  // Of backward only what a checkpointed part computes again, with gradients on.
  if (cast && (!in_backward() || at::GradMode::is_enabled())) cast_arguments(call, *cast);
}

// What is written is kept at once: the optimizer may step the shard before the unit is released.
void Residency::replace(OperatorCall& call, std::span<const TensorUse> uses) {
  const bool writes = std::ranges::any_of(uses, [](const TensorUse& use) { return use.is_written; });
  if (!writes && !rules_.releases_at_once) return;
  call.run();
  for (const auto& [mark, is_written] : uses) {
    const auto& place = members_[mark->tag()];
    if (!is_written) continue;
    units_[place.unit].flats[place.flat]->keep_written(place.member);
    on_write_(mark->tag());
  }
  if (rules_.releases_at_once && !holds_all_) release_present();
}

void Residency::gather_all() {
  name_units([&] {
    for (std::size_t unit = 0; unit < units_.size(); ++unit) start(unit);
    for (std::size_t unit = 0; unit < units_.size(); ++unit) make_live(unit);
  });
  holds_all_ = has_held_all_ = true;
}

void Residency::use(std::size_t unit) {
  if (holds_all_ || (current_ == unit && units_[unit].state == UnitState::kLive)) return;
  if (stands_apart(unit)) return make_live(unit);
  const auto now = phase();
  const auto next = predictor_.next_after(unit, now);
  current_ = unit;
  if (std::erase(present_, unit) > 0) present_.push_back(unit);  // the least recently used first
  if (rules_.limits_gathers) release_unneeded(next);
  make_live(unit);
  if (!rules_.limits_gathers) release_unneeded(next);
  next_ = next;
  if (next && may_prefetch(*next, now) && !rules_.releases_at_once) start(*next);
}

// Persistent parameters, and those that are whole on every rank, are used beside those of every unit: they
// say nothing about what comes next.
bool Residency::stands_apart(std::size_t unit) const {
  if (units_[unit].elements == 0) return true;
  return units_[unit].keeps_until_step && rules_.keep != KeepGathered::kUntilStep;
}

bool Residency::may_prefetch(std::size_t unit, UsePhase phase) const {
  if (units_[unit].elements > rules_.most_prefetched_elements) return false;
  return phase == UsePhase::kBackward ? rules_.backward_prefetch == BackwardPrefetch::kBackwardPre
                                      : rules_.prefetches_forward;
}

bool Residency::is_pinned(std::size_t unit) const { return unit == current_ || is_in(pinned_, unit); }

// The root is used at both ends of a forward pass, and backward begins with it: it stays, as in FSDP.
void Residency::release_unneeded(std::optional<std::size_t> next) {
  const bool is_evaluation = phase() == UsePhase::kEvaluation;
  if (rules_.keep == KeepGathered::kUntilBackward && !is_evaluation) return;
  const auto most = is_evaluation ? 0 : rules_.max_live_elements;
  auto live = live_elements();
  const auto present = present_;
  for (const auto unit : present) {
    if (live <= most) return;
    const auto& candidate = units_[unit];
    if (is_pinned(unit) || unit == next || candidate.is_root || candidate.keeps_until_step) continue;
    release(unit);
    live -= candidate.elements;
  }
}

// With the one that is about to come.
std::int64_t Residency::live_elements() const {
  std::int64_t elements = current_ && !is_in(present_, *current_) ? units_[*current_].elements : 0;
  for (const auto unit : present_) elements += units_[unit].elements;
  return elements;
}

constexpr const char* kRemedy =
    "branches that depend on data, chance or the rank, and code that runs on some ranks only or after fit, "
    "must not gather: all ranks call ls::zero::GatheredParameters, or the strategy's hold_whole(), and "
    "within its "
    "scope each of them may use parameters as it likes";

// What this rank gathers, and for what.
std::string Residency::asked_for() const {
  std::string units;
  for (const auto& unit : units_) {
    if (unit.state == UnitState::kGathering)
      units += (units.empty() ? "unit " : ", unit ") + (unit.name.empty() ? "(root)" : unit.name);
  }
  return units +
         (parameter_ == nullptr ? "" : (units.empty() ? "parameter " : " for parameter ") + *parameter_);
}

// Errors of collectives know a unit by its number, or not at all.
template <class Gather>
void Residency::name_units(const Gather& gather) {
  try {
    gather();
  } catch (const CollectiveMismatch& error) {
    refuse_mismatch(error);
  } catch (const PeerLost& error) {
    throw PeerLost("parallel",
                   {.what = "gathering " + asked_for() + " failed", .got = error.what(), .hint = kRemedy},
                   error.ranks());
  } catch (const Timeout& error) {
    throw Timeout("parallel",
                  {.what = "gathering " + asked_for() + " failed", .got = error.what(), .hint = kRemedy},
                  error.ranks());
  }
  parameter_ = nullptr;
}

void Residency::refuse_mismatch(const CollectiveMismatch& error) const {
  std::string units;
  for (const auto& unit : units_) {
    char number[32];
    std::snprintf(number, sizeof number, "layout %llx", static_cast<unsigned long long>(unit.number));
    if (!names(error.what(), number)) continue;
    units += (units.empty() ? "" : ", ") + std::string(number) + " is unit " +
             (unit.name.empty() ? "(root)" : unit.name);
  }
  throw CollectiveMismatch("parallel",
                           {.what = "the ranks do not use the same units of the model in the same order",
                            .expected = "the same operators on all ranks",
                            .got = std::string(error.what()) + (units.empty() ? "" : " where " + units),
                            .where = asked_for(),
                            .hint = kRemedy},
                           error.ranks());
}

void Residency::start(std::size_t number) {
  auto& unit = units_[number];
  if (unit.state != UnitState::kSharded) return;
  const c10::InferenceMode off(false);
  for (const auto& flat : unit.flats) {
    if (flat->is_resident()) continue;
    stats_.gathered_bytes += flat->gathered_bytes();
    if (flat->has_secondary()) stats_.secondary_gathered_bytes += flat->gathered_bytes();
    flat->start_gather(pool_, unit.number);
  }
  unit.state = UnitState::kGathering;
  present_.push_back(number);
  ++stats_.gathers;
}

void Residency::make_live(std::size_t number) {
  auto& unit = units_[number];
  if (unit.state == UnitState::kLive) return;
  if (unit.state == UnitState::kGathering) ++stats_.prefetched_gathers;
  start(number);
  const c10::InferenceMode off(false);
  for (const auto& flat : unit.flats) {
    if (!flat->is_resident()) flat->finish_gather(pool_);
  }
  unit.state = UnitState::kLive;
}

void Residency::release(std::size_t number) {
  auto& unit = units_[number];
  const c10::InferenceMode off(false);
  for (const auto& flat : unit.flats) flat->release(pool_, rules_.releases_at_once);
  unit.state = UnitState::kSharded;
  std::erase(present_, number);
}

// No operator is running between two nodes of a graph. A layer that is used once more gathers it again.
void Residency::end_backward_of(std::size_t unit) {
  pinned_.clear();
  const auto is_frozen = [](const auto& flat) { return !flat->is_trained(); };
  const bool may_go = !units_[unit].keeps_until_step && std::ranges::none_of(units_[unit].flats, is_frozen);
  name_units([&] {
    if (may_go && is_in(present_, unit)) release(unit);
  });
  if (rules_.backward_prefetch == BackwardPrefetch::kBackwardPost && next_) start(*next_);
}

void Residency::forget_uses() {
  holds_all_ = false;
  pinned_.clear();
  current_.reset();
  next_.reset();
}

template <class Forget>
void Residency::release_and(const Forget& forget) {
  release_present();
  for (const auto& unit : units_) {
    for (const auto& flat : unit.flats) forget(*flat);
  }
  if (std::exchange(has_held_all_, false)) pool_.forget_peak();
}

void Residency::release_all() {
  release_and([](FlatParameter& flat) { flat.forget_copies(); });
}

void Residency::release_after_step() {
  release_and([](FlatParameter& flat) { flat.forget_unless_written(); });
}

void Residency::release_present() {
  forget_uses();
  while (!present_.empty()) release(present_.back());
}

void Residency::release_passing() {
  forget_uses();
  const auto present = present_;
  for (const auto unit : present) {
    const bool stays = units_[unit].keeps_until_step && units_[unit].state == UnitState::kLive;
    if (!stays) release(unit);
  }
}

ShardedStats Residency::stats() const {
  auto stats = stats_;
  stats.peak_gathered_bytes = pool_.peak_bytes();
  stats.buffer_bytes = pool_.bytes();
  return stats;
}

}  // namespace lockstep::detail
