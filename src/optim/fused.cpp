#include "optim/fused.h"

#include <fnmatch.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <tuple>
#include <unordered_set>
#include <utility>

#include <ATen/ops/from_blob.h>

#include <lockstep/base/error.h>

#include "device/step_recording.h"
#include "offload/swap_folder.h"
#include "optim/make_optimizer.h"
#include "optim/state_memory.h"

namespace lockstep::detail {
namespace {

bool matches(const ParameterGroup& group, const std::string& name) {
  return fnmatch(group.pattern.c_str(), name.c_str(), 0) == 0;
}

Optimizer::Group with_overrides(Optimizer::Group group, const ParameterGroup& overrides) {
  group.pattern = overrides.pattern;
  group.lr = group.initial_lr = overrides.lr.value_or(group.lr);
  group.weight_decay = overrides.weight_decay.value_or(group.weight_decay);
  if (overrides.momentum) group.momentum = overrides.momentum;
  if (overrides.betas) group.betas = overrides.betas;
  return group;
}

[[noreturn]] void refuse_idle_pattern(const ParameterGroup& group,
                                      std::span<const NamedParameter> parameters) {
  std::vector<std::string> names;
  for (const auto& parameter : parameters) names.push_back(parameter.name);
  const bool taken =
      std::any_of(names.begin(), names.end(), [&](const auto& name) { return matches(group, name); });
  refuse("groups: pattern \"" + group.pattern + "\" chooses no parameter", "a glob over " + some_of(names),
         taken ? "only parameters that an earlier pattern chose" : "no match",
         taken ? "the first pattern that matches wins: put the narrower one first"
               : did_you_mean(nearest_name(group.pattern, names)));
}

}  // namespace

Grouping group_parameters(std::span<const NamedParameter> parameters, const Optimizer::Group& defaults,
                          std::span<const ParameterGroup> patterns) {
  Grouping result;
  for (const auto& pattern : patterns) result.groups.push_back(with_overrides(defaults, pattern));
  result.groups.push_back(defaults);
  for (const auto& parameter : parameters) {
    const auto found = std::find_if(patterns.begin(), patterns.end(),
                                    [&](const auto& pattern) { return matches(pattern, parameter.name); });
    result.group_of.push_back(static_cast<std::size_t>(found - patterns.begin()));
    result.groups[result.group_of.back()].parameters.push_back(parameter.name);
  }
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    if (result.groups[i].parameters.empty()) refuse_idle_pattern(patterns[i], parameters);
  }
  if (result.groups.back().parameters.empty()) result.groups.pop_back();
  return result;
}

namespace {

at::ScalarType compute_dtype(const at::Tensor& param) {
  return param.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

void check_gradient(const NamedParameter& parameter, const at::Tensor& grad) {
  const auto what = "the gradient of " + parameter.name + " cannot be used";
  if (grad.layout() != at::kStrided) {
    refuse(what, "a dense gradient", "a sparse one (" + c10::str(grad.layout()) + ")",
           "build the embedding with sparse(false)");
  }
  if (grad.sizes() != parameter.tensor.sizes()) {
    refuse(what, "shape " + c10::str(parameter.tensor.sizes()), c10::str(grad.sizes()));
  }
}

// A parameter without a gradient may be one that a sharded engine has taken over since: its gradients are
// those of other tensors.
void check_has_memory(const NamedParameter& parameter) {
  auto& storage = *parameter.tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  if (storage.nbytes() == 0 || storage._mutable_data_ptr_no_checks().get() != nullptr) return;
  refuse("parameter " + parameter.name + " cannot be optimized", "a tensor with memory",
         "one that is sharded over the ranks",
         "make the optimizer after fully_shard(), of its parameters(), or leave that to a strategy");
}

}  // namespace

bool can_be_captured(const Optimizer& optimizer) {
  return dynamic_cast<const FusedOptimizer*>(&optimizer) != nullptr;
}

// Recordings refer to it.
FusedOptimizer::~FusedOptimizer() { outdate_recordings(); }

FusedOptimizer::FusedOptimizer(std::vector<NamedParameter> parameters, Grouping grouping,
                               std::vector<std::string> kinds)
    : Optimizer(std::move(parameters), std::move(grouping.groups)),
      device_(this->parameters().front().tensor.device()),
      kinds_(std::move(kinds)) {
  for (std::size_t i = 0; i < this->parameters().size(); ++i) {
    check_device(this->parameters()[i]);
    slots_.push_back(new_slot(i, grouping.group_of[i]));
  }
}

// Gradients that a recorded step would have made are none where it is not done.
void FusedOptimizer::follow_recording(bool is_given_up) {
  if (is_given_up) is_amid_step_ = false;  // nothing of it was done
  had_gradients_.resize(parameters().size());
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    auto& gradient = parameters()[i].tensor.mutable_grad();
    if (is_given_up && gradient.defined() && !had_gradients_[i]) gradient.reset();
    had_gradients_[i] = gradient.defined();
  }
}

void FusedOptimizer::check_device(const NamedParameter& parameter) const {
  if (parameter.tensor.is_meta())
    refuse("parameter " + parameter.name + " cannot be optimized", "a tensor on the CPU", "one on meta");
  if (parameter.tensor.device() == device_) return;
  refuse("parameter " + parameter.name + " cannot be optimized",
         "all parameters on one device, " + device_.str(), "one on " + parameter.tensor.device().str());
}

at::Tensor FusedOptimizer::Slot::tensor(std::size_t kind) const {
  const auto& mapped = buffers[kind];
  if (!shifts || mapped.numel() == 0) return mapped;
  auto* const bytes = static_cast<std::byte*>(mapped.mutable_data_ptr()) + shifts[kind];
  return at::from_blob(bytes, mapped.sizes(), mapped.options());
}

FusedOptimizer::Slot FusedOptimizer::new_slot(std::size_t parameter, std::size_t group) const {
  return {.parameter = parameter, .group = group, .narrow = narrow_copy_of(parameters()[parameter].tensor)};
}

// None for what is staged: it becomes the parameter's elements later.
NarrowElements FusedOptimizer::copy_written_with(const Slot& slot, const at::Tensor& param) const {
  const bool is_staged = !param.is_same(parameter(slot).tensor);
  if (!slot.narrow || is_staged || param.is_inference()) return {};
  slot.narrow->written_of.reset();
  return elements_of(*slot.narrow);
}

// As operators that write do, so that who has saved a parameter finds out.
void FusedOptimizer::count_as_written(std::span<Slot* const> written,
                                      std::span<Slot* const> with_copies) const {
  for (const auto* slot : written) {
    const auto& param = parameter(*slot).tensor;
    if (!param.is_inference()) param.unsafeGetTensorImpl()->bump_version();
  }
  for (auto* slot : with_copies)
    slot->narrow->written_of = static_cast<std::uint32_t>(parameter(*slot).tensor._version());
}

// Some parameters have been updated, others have not, and a file may hold half of what was written.
void FusedOptimizer::require_whole_step() const {
  if (!is_amid_step_) return;
  throw IoError("optim", {.what = std::string(name()) + ": a step has failed half way",
                          .expected = "parameters and state of one moment",
                          .hint = "load both from a checkpoint"});
}

std::vector<FusedOptimizer::Slot*> FusedOptimizer::slots_with_gradient() {
  require_whole_step();
  prepare_trained();
  std::vector<Slot*> result;
  for (auto& slot : slots_) {
    const auto& grad = parameter(slot).tensor.grad();
    if (!grad.defined()) {
      check_has_memory(parameter(slot));
      continue;
    }
    check_gradient(parameter(slot), grad);
    result.push_back(&slot);
  }
  prepare(result);
  return result;
}

void FusedOptimizer::prepare(std::span<Slot* const> slots) {
  std::map<std::tuple<at::ScalarType, std::size_t, bool>, std::vector<Slot*>> bare;
  for (Slot* slot : slots) {
    const auto& group = groups()[slot->group];
    if (slot->step.defined() || !has_state(group)) continue;
    bare[{compute_dtype(parameter(*slot).tensor), kinds(group).size(), may_swap(group)}].push_back(slot);
  }
  if (!bare.empty()) refuse_in_recording("the beginning of an optimizer's state");
  for (const auto& [alike, same] : bare) {
    const auto dtype = std::get<0>(alike);
    const std::vector<at::Tensor> scalars(same.size(), at::empty({}));
    const auto steps = carve_arena(scalars, is_on_device() ? at::kFloat : at::kLong, device_);
    try {
      add_buffers(same, dtype);
    } catch (...) {  // no room: they have no state, and may get it another time
      for (Slot* slot : same) slot->buffers.clear();
      throw;
    }
    for (std::size_t i = 0; i < same.size(); ++i) same[i]->step = steps[i];
  }
}

// Of state that is to be in files the first parameters' may stay in memory.
void FusedOptimizer::add_buffers(std::span<Slot* const> slots, at::ScalarType dtype) {
  if (!swap_ || !may_swap(groups()[slots.front()->group])) return add_buffers_in_memory(slots, dtype);
  double elements = 0, in_memory = 0;
  for (const Slot* slot : slots) elements += static_cast<double>(parameter(*slot).tensor.numel());
  std::size_t kept = 0;
  while (kept < slots.size()) {
    in_memory += static_cast<double>(parameter(*slots[kept]).tensor.numel());
    if (in_memory > elements * (1.0 - swap_->share)) break;
    ++kept;
  }
  const auto others = slots.subspan(kept);
  std::vector<at::Tensor> like;
  for (const Slot* slot : others) like.push_back(parameter(*slot).tensor);
  const bool needs_file = arena_elements(like, dtype) > 0;
  add_buffers_in_memory(needs_file ? slots.first(kept) : slots, dtype);
  if (needs_file) add_buffers_in_file(others, like, dtype);
}

// All first buffers lie side by side, then all second ones.
void FusedOptimizer::add_buffers_in_memory(std::span<Slot* const> slots, at::ScalarType dtype) {
  if (slots.empty()) return;
  std::vector<at::Tensor> like;
  for (const Slot* slot : slots) like.push_back(parameter(*slot).tensor);
  for (std::size_t kind = 0; kind < kinds(groups()[slots.front()->group]).size(); ++kind) {
    const auto buffers = carve_arena(like, dtype, device_);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (initial_state() != 0.0) at::Tensor(buffers[i]).fill_(initial_state());
      slots[i]->buffers.push_back(buffers[i]);
    }
  }
}

void FusedOptimizer::add_buffers_in_file(std::span<Slot* const> slots, std::span<const at::Tensor> like,
                                         at::ScalarType dtype) {
  static std::atomic<int> files = 0;  // several optimizers may have one folder
  const auto name = "state_" + std::to_string(files++);
  const auto kinds_of_each = kinds(groups()[slots.front()->group]).size();
  std::unique_ptr<SwappedSlots> swapped(
      new SwappedSlots{.slots = {}, .tiles = SwappedTiles(*swap_, name, like, kinds_of_each, dtype)});
  for (std::size_t i = 0; i < slots.size(); ++i) {
    swapped->slots.push_back(static_cast<std::size_t>(slots[i] - slots_.data()));
    for (std::size_t kind = 0; kind < kinds_of_each; ++kind) {
      slots[i]->buffers.push_back(swapped->tiles.tensor(i, kind));
      if (initial_state() != 0.0) slots[i]->buffers.back().fill_(initial_state());
    }
  }
  swapped_.push_back(std::move(swapped));
}

bool FusedOptimizer::leave_out_next_step_if(const at::Tensor& found_inf) {
  if (!is_on_device()) return false;
  found_inf_ = found_inf;
  return true;
}

void FusedOptimizer::swap_state(const StateSwap& where) {
  if (is_on_device())
    refuse(std::string(name()) + ": state of parameters on a device cannot be kept on disk",
           "parameters on the CPU", "some on " + device_.str(),
           "offload the parameters, too: their shards are on the CPU then");
  const auto has_begun = [](const Slot& slot) { return slot.step.defined(); };
  if (std::ranges::any_of(slots_, has_begun))
    refuse("state is to be kept on disk", "an optimizer without state", "one that has some already");
  offload::check_room(
      where.folder->path().parent_path(),
      {.bytes = (bytes_in_files(where.share) + where.other_bytes) * static_cast<std::uint64_t>(where.ranks),
       .what = "the optimizer state and gradients of " + std::to_string(where.ranks) + " rank(s)"});
  swap_ = where;
}

// About: tensors begin on cache lines of their own.
std::uint64_t FusedOptimizer::bytes_in_files(double share) const {
  double bytes = 0;
  for (const auto& slot : slots_) {
    const auto& param = parameter(slot).tensor;
    const auto& group = groups()[slot.group];
    if (!param.requires_grad() || !has_state(group) || !may_swap(group)) continue;
    bytes += static_cast<double>(kinds(group).size()) * static_cast<double>(param.numel()) *
             static_cast<double>(c10::elementSize(compute_dtype(param)));
  }
  return static_cast<std::uint64_t>(bytes * share);
}

void FusedOptimizer::adopt_parameters(std::size_t first) {
  outdate_recordings();
  for (std::size_t i = first; i < parameters().size(); ++i) check_device(parameters()[i]);
  for (std::size_t i = first; i < parameters().size(); ++i)
    slots_.push_back(new_slot(i, groups().size() - 1));
}

void FusedOptimizer::prepare_state(std::span<const OptimizerState> saved) {
  outdate_recordings();
  std::unordered_set<std::string> wanted;
  for (const auto& entry : saved) wanted.insert(entry.parameter);
  for (auto& slot : slots_) slot.shifts = nullptr;
  is_amid_step_ = false;
  std::vector<Slot*> slots;
  for (auto& slot : slots_) {
    if (wanted.contains(parameter(slot).name)) slots.push_back(&slot);
  }
  prepare(slots);
}

void FusedOptimizer::prepare_trained() {
  std::vector<Slot*> trained;
  for (auto& slot : slots_) {
    if (parameter(slot).tensor.requires_grad()) trained.push_back(&slot);
  }
  prepare(trained);
}

std::vector<OptimizerState> FusedOptimizer::state() {
  require_whole_step();
  prepare_trained();
  std::vector<OptimizerState> result;
  for (const auto& slot : slots_) {
    const auto& group = groups()[slot.group];
    if (!slot.step.defined() || !has_state(group)) continue;  // loaded settings may have no use for it
    result.push_back({parameter(slot).name, "step", slot.step});
    const auto names = kinds(group);
    for (std::size_t kind = 0; kind < names.size(); ++kind) {
      result.push_back({parameter(slot).name, names[kind], slot.buffers[kind]});
    }
  }
  return result;
}

// Those that have to be taken to float32 come in batches of their own, so that memory for copies stays small.
std::vector<FusedOptimizer::StagedBatch> FusedOptimizer::device_batches(double grad_scale) {
  constexpr std::int64_t kMostStaged = 64 << 20;  // elements
  const auto scale =
      grad_scale == 1.0
          ? std::nullopt
          : std::optional(at::full({}, grad_scale, at::TensorOptions(device_).dtype(at::kDouble)));
  const auto found_inf = std::exchange(found_inf_, std::nullopt);
  std::vector<StagedBatch> batches;
  std::map<std::tuple<std::size_t, at::ScalarType, bool>, std::size_t> open;
  std::map<std::size_t, std::int64_t> staged_elements;
  const bool may_split = is_elementwise();  // others ask other ranks about the parameters of a batch
  for (auto* slot : slots_with_gradient()) {
    const auto& param = parameter(*slot).tensor;
    const std::tuple key(slot->group, compute_dtype(param), lies_ready(param));
    auto [place, is_new] = open.emplace(key, batches.size());
    if (!is_new && may_split && !lies_ready(param) &&
        staged_elements[place->second] + param.numel() > kMostStaged) {
      place->second = batches.size();
      is_new = true;
    }
    if (is_new)
      batches.push_back({.batch = {.grad_scale = scale, .found_inf = found_inf}, .group = slot->group});
    auto& [batch, group, slots] = batches[place->second];
    staged_elements[place->second] += param.numel();
    slots.push_back(slot);
    batch.names.push_back(parameter(*slot).name);
    batch.parameters.push_back(lies_ready(param) ? param.detach() : at::Tensor());
    batch.gradients.push_back(param.grad());
    if (slot->step.defined()) batch.steps.push_back(slot->step);
    batch.buffers.resize(slot->buffers.size());
    for (std::size_t kind = 0; kind < slot->buffers.size(); ++kind)
      batch.buffers[kind].push_back(slot->buffers[kind]);
  }
  for (auto& staged : batches) follow_settings(staged);
  return batches;
}

// Schedules change settings between the replays of a captured step: the learning rate is read in each.
void FusedOptimizer::follow_settings(StagedBatch& staged) const {
  auto* const recording = StepRecording::current();
  if (recording == nullptr) return;
  const auto group = [this, index = staged.group]() -> const Group& { return groups()[index]; };
  // Kernels of LibTorch take a learning rate in a tensor as float32.
  if (compute_dtype(parameter(*staged.slots.front()).tensor) == at::kDouble)
    recording->depend_on([group] { return group().lr; });
  else
    staged.batch.lr = recording->number([group] { return group().lr; });
  recording->depend_on([group] { return group().weight_decay; });
  recording->depend_on([group] { return group().momentum.value_or(0.0); });
  for (const std::size_t i : {0, 1})
    recording->depend_on([group, i] { return group().betas ? (*group().betas)[i] : 0.0; });
  recording->depend_on([this] {
    return static_cast<double>(std::ranges::count_if(
        parameters(), [](const auto& parameter) { return parameter.tensor.requires_grad(); }));
  });
}

void FusedOptimizer::write_back(const StagedBatch& staged) const {
  for (std::size_t i = 0; i < staged.slots.size(); ++i) {
    const auto& param = parameter(*staged.slots[i]).tensor;
    const auto& updated = staged.batch.parameters[i];
    if (!lies_ready(param)) param.copy_(updated);
    if (lies_ready(param) && !param.is_inference()) param.unsafeGetTensorImpl()->bump_version();
  }
}

bool FusedOptimizer::lies_ready(const at::Tensor& param) {
  return param.scalar_type() == compute_dtype(param) && param.is_contiguous();
}

// What kernels cannot work on where it lies: of another dtype, or not contiguous.
at::Tensor FusedOptimizer::stage(const at::Tensor& param) {
  return param.to(compute_dtype(param)).contiguous();
}

}  // namespace lockstep::detail
