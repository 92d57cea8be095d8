// What the optimizers over kernels.h share: state slots, and the walk over the gradients.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include <lockstep/optim/optimizer.h>
#include <lockstep/optim/optimizer_options.h>

#include "device/step_recording.h"
#include "optim/device_operators.h"
#include "optim/kernels.h"
#include "optim/pieces.h"
#include "optim/segments.h"
#include "optim/state_memory.h"

namespace lockstep::detail {

// Parameter groups by pattern.

/// The groups, and for each parameter the index of its own.
struct Grouping {
  std::vector<Optimizer::Group> groups;
  std::vector<std::size_t> group_of;
};

/// The settings of an optimizer that its groups begin with.
template <class Options>
Optimizer::Group default_group(const Options& options) {
  Optimizer::Group group{
      .pattern = "", .lr = options.lr, .initial_lr = options.lr, .weight_decay = options.weight_decay};
  if constexpr (requires { options.momentum; }) group.momentum = options.momentum;
  if constexpr (requires { options.betas; }) group.betas = options.betas;
  return group;
}

/// Sorts the parameters into groups: the first pattern that matches a name wins, the rest share `defaults`.
/// @throws ConfigError if a pattern matches no parameter, or none is left for it
Grouping group_parameters(std::span<const NamedParameter> parameters, const Optimizer::Group& defaults,
                          std::span<const ParameterGroup> patterns);

/// Whether replays of a captured step may take the steps of `optimizer`: lockstep's own read their settings
/// anew in each.
bool can_be_captured(const Optimizer& optimizer);

/// An optimizer whose step is one kernel call over many segments.
class FusedOptimizer : public Optimizer {
 public:
  ~FusedOptimizer() override;
  std::vector<OptimizerState> state() override;
  void swap_state(const StateSwap& where) override;
  bool leave_out_next_step_if(const at::Tensor& found_inf) override;

 protected:
  /// A parameter's state. Without state until prepared; then `buffers` has one tensor per kind.
  struct Slot {
    std::size_t parameter;
    std::size_t group;
    at::Tensor step = {};
    std::vector<at::Tensor> buffers = {};
    const std::ptrdiff_t* shifts =
        nullptr;  // bytes, by kind: where the buffers are while a tile is in memory
    std::shared_ptr<NarrowCopy> narrow = {};  // to be written along, if somebody wants it

    std::int64_t& steps() const { return *step.data_ptr<std::int64_t>(); }
    template <class T>
    T* buffer(std::size_t kind) const {
      auto* const bytes = reinterpret_cast<std::byte*>(buffers[kind].data_ptr<T>());
      return reinterpret_cast<T*>(shifts ? bytes + shifts[kind] : bytes);
    }
    /// The same as a tensor, which is of use as long.
    at::Tensor tensor(std::size_t kind) const;
  };

  FusedOptimizer(std::vector<NamedParameter> parameters, Grouping grouping, std::vector<std::string> kinds);

  /// Whether parameters of this group have state at the moment.
  virtual bool has_state(const Group& group) const = 0;

  /// Names of the buffers that parameters of this group have.
  virtual std::span<const std::string> kinds(const Group&) const { return kinds_; }

  /// Whether the state of this group may lie on disk, if any does.
  virtual bool may_swap(const Group&) const { return true; }

  /// What the buffers start with.
  virtual double initial_state() const { return 0.0; }

  /// The parameters with a gradient, their state prepared. @throws ConfigError for a gradient of no use;
  /// IoError when a step has failed half way, and nothing was loaded since
  std::vector<Slot*> slots_with_gradient();
  const NamedParameter& parameter(const Slot& slot) const { return parameters()[slot.parameter]; }

  /// Calls make(slot, T* param, Gradients grad, size) for each of `slots`, T being float or double, and
  /// updates the segments that it returns. Of state in files a pass may be told that it only reads.
  template <class Make>
  void update_parameters(std::span<Slot* const> slots, Make&& make,
                         offload::SwapPass pass = offload::SwapPass::kUpdate);

  /// The same for each parameter with a gradient.
  template <class Make>
  void update_parameters(Make&& make) {
    const auto slots = slots_with_gradient();
    update_parameters(std::span(slots), std::forward<Make>(make));
  }

  /// Whether the parameters are on another device than the CPU, all on one.
  bool is_on_device() const { return !device_.is_cpu(); }

  /// For those: calls update(batch, group) for all parameters with a gradient, in batches of what has group
  /// and element type in common. What kernels do not know, 16 bits for one, is updated in float32.
  template <class Update>
  void update_on_device(double grad_scale, Update&& update);

  /// Calls change(slot) for each of `slots` while its buffers are in memory: those in files come first.
  template <class Change>
  void change_state(std::span<Slot* const> slots, Change&& change);

  /// Runs `body`, of several passes: when it throws, the step has failed half way.
  template <class Body>
  void as_one_step(Body&& body);

  void prepare_state(std::span<const OptimizerState> saved) override;
  void adopt_parameters(std::size_t first) override;

 private:
  /// State of some slots that lies in a file.
  struct SwappedSlots {
    std::vector<std::size_t> slots;
    SwappedTiles tiles;
  };

  /// Slots of one batch, and the parameters to be written back.
  struct StagedBatch {
    DeviceBatch batch;
    std::size_t group = 0;
    std::vector<Slot*> slots = {};
  };
  std::vector<StagedBatch> device_batches(double grad_scale);
  void follow_settings(StagedBatch& staged) const;
  void write_back(const StagedBatch& staged) const;
  void check_device(const NamedParameter& parameter) const;
  void follow_recording(bool is_given_up);

  void prepare_trained();
  void prepare(std::span<Slot* const> slots);
  void add_buffers(std::span<Slot* const> slots, at::ScalarType dtype);
  std::uint64_t bytes_in_files(double share) const;
  void require_whole_step() const;
  void add_buffers_in_memory(std::span<Slot* const> slots, at::ScalarType dtype);
  void add_buffers_in_file(std::span<Slot* const> slots, std::span<const at::Tensor> like,
                           at::ScalarType dtype);
  template <class Update>
  void update_in_memory_and_files(std::span<Slot* const> slots, offload::SwapPass pass, Update&& update);
  Slot new_slot(std::size_t parameter, std::size_t group) const;
  NarrowElements copy_written_with(const Slot& slot, const at::Tensor& param) const;
  void count_as_written(std::span<Slot* const> written, std::span<Slot* const> with_copies) const;
  static bool lies_ready(const at::Tensor& param);
  static at::Tensor stage(const at::Tensor& param);

  at::Device device_;
  std::optional<at::Tensor> found_inf_;  // of the next step
  std::vector<bool> had_gradients_;      // when a recording may have begun
  std::vector<std::string> kinds_;
  std::vector<Slot> slots_;
  std::optional<StateSwap> swap_ = {};
  std::vector<std::unique_ptr<SwappedSlots>> swapped_ = {};
  bool is_amid_step_ = false;  // or one has failed half way
  RecordingListener listener_{[this](bool is_given_up) { follow_recording(is_given_up); }};
};

// Those in files tile by tile.
template <class Update>
void FusedOptimizer::update_in_memory_and_files(std::span<Slot* const> slots, offload::SwapPass pass,
                                                Update&& update) {
  if (swapped_.empty()) return update(slots);
  std::unordered_set<const Slot*> left(slots.begin(), slots.end());
  std::vector<Slot*> chosen;
  for (const auto& swapped : swapped_) {
    const auto is_wanted = [&](std::size_t slot) { return left.contains(&slots_[slot]); };
    if (std::ranges::none_of(swapped->slots, is_wanted)) continue;
    const auto act = [&](std::span<const std::size_t> members, std::span<const std::ptrdiff_t> shifts) {
      chosen.clear();
      for (const auto member : members) {
        auto& slot = slots_[swapped->slots[member]];
        if (left.erase(&slot) == 0) continue;
        slot.shifts = shifts.data();
        chosen.push_back(&slot);
      }
      update(std::span<Slot* const>(chosen));
      for (auto* slot : chosen) slot->shifts = nullptr;
    };
    swapped->tiles.walk(act, pass);
  }
  chosen.clear();
  for (auto* slot : slots) {
    if (left.contains(slot)) chosen.push_back(slot);
  }
  update(std::span<Slot* const>(chosen));
}

template <class Body>
void FusedOptimizer::as_one_step(Body&& body) {
  const bool is_part = std::exchange(is_amid_step_, true);
  body();
  is_amid_step_ = is_part;
}

template <class Update>
void FusedOptimizer::update_on_device(double grad_scale, Update&& update) {
  auto batches = device_batches(grad_scale);
  as_one_step([&] {
    for (auto& staged : batches) {
      for (std::size_t i = 0; i < staged.slots.size(); ++i) {
        auto& param = staged.batch.parameters[i];
        if (!param.defined()) param = stage(parameter(*staged.slots[i]).tensor);
      }
      update(staged.batch, groups()[staged.group]);
      write_back(staged);
    }
  });
}

template <class Change>
void FusedOptimizer::change_state(std::span<Slot* const> slots, Change&& change) {
  as_one_step([&] {
    update_in_memory_and_files(slots, offload::SwapPass::kUpdate, [&](std::span<Slot* const> chosen) {
      for (Slot* slot : chosen) change(*slot);
    });
  });
}

template <class Make>
void FusedOptimizer::update_parameters(std::span<Slot* const> slots, Make&& make, offload::SwapPass pass) {
  const auto segment = [&]<class T>(Slot& slot, const at::Tensor& param, const at::Tensor& grad, T) {
    return make(slot, param.data_ptr<T>(), gradients_in(grad), param.numel());
  };
  std::vector<decltype(segment(slots_[0], {}, {}, float{}))> floats;
  std::vector<decltype(segment(slots_[0], {}, {}, double{}))> doubles;
  std::vector<Slot*> with_copies;
  const auto flush = [&] {
    update_all(std::span(std::as_const(floats)));
    update_all(std::span(std::as_const(doubles)));
    floats.clear();
    doubles.clear();
  };
  const auto add = [&](Slot& slot, const at::Tensor& param, const at::Tensor& grad) {
    if (param.scalar_type() == at::kDouble) {
      doubles.push_back(segment(slot, param, grad, double{}));
    } else {
      floats.push_back(segment(slot, param, grad, float{}));
      if constexpr (requires { floats.back().copy; }) {
        floats.back().copy = copy_written_with(slot, param);
        if (floats.back().copy.elements != nullptr) with_copies.push_back(&slot);
      }
    }
  };
  const auto update = [&](std::span<Slot* const> chosen) {
    for (Slot* slot : chosen) {
      const auto& param = parameter(*slot).tensor;
      if (lies_ready(param) && is_readable(param.grad())) {
        add(*slot, param, param.grad());
        continue;
      }
      // One staged parameter at a time, so that memory for copies stays small.
      flush();
      const auto staged = stage(param), grad = readable(param.grad());
      add(*slot, staged, grad);
      flush();
      if (!staged.is_same(param)) param.copy_(staged);
    }
    flush();
    count_as_written(chosen, with_copies);
    with_copies.clear();
  };
  as_one_step([&] { update_in_memory_and_files(slots, pass, update); });
}

}  // namespace lockstep::detail
