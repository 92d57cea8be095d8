// What every loop does with a batch: gets it from the loader, lets hooks transfer it, measures its step.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <lockstep/base/rank_status.h>
#include <lockstep/train/data_module.h>
#include <lockstep/train/module.h>

#include "base/failure_place.h"
#include "train/logging/class_name.h"
#include "train/loops/trainer_state.h"

namespace lockstep::detail {

/// Profiles the parts of a step under Lightning's names, and notes that this rank is in them. Borrows the
/// profiler. Without one each call tests a pointer and stores a number.
class StepMeasure {
 public:
  StepMeasure(const RunSetup& setup, std::string_view step_name)
      : step_(step_name == "training_step" ? RankActivity::kStep : RankActivity::kEvaluation) {
    if (!setup.profiler) return;
    const auto of_strategy = [&](std::string_view what) {
      return Action(hook_action_name("Strategy", strategy_name(setup), what), ActionCategory::kOperator);
    };
    actions_.emplace(
        Actions{setup.profiler.get(),
                Action("[DataLoader]." + std::string(step_name) + "_next", ActionCategory::kData),
                of_strategy(step_name), of_strategy("backward"), of_strategy("optimizer_step")});
  }

  /// Gets the next batch of `stream`; false at its end.
  bool next(BatchStream& stream, AnyBatch& batch) const {
    note_activity(RankActivity::kData);
    const auto scope = measure(&Actions::next);
    return in_place("loading data", [&] { return stream.next(batch); });
  }
  ProfileScope step() const { return measure(&Actions::step, step_); }
  ProfileScope backward() const { return measure(&Actions::backward, RankActivity::kBackward); }
  ProfileScope optimizer_step() const { return measure(&Actions::optimizer_step, RankActivity::kOptimizer); }

 private:
  struct Actions {
    Profiler* profiler;
    Action next, step, backward, optimizer_step;
  };

  static std::string strategy_name(const RunSetup& setup) {
    auto name = class_name(*setup.strategy);
    return name.ends_with("Strategy") ? name : name + "Strategy";
  }

  ProfileScope measure(Action Actions::*action, RankActivity place) const {
    note_activity(place);
    return measure(action);
  }
  ProfileScope measure(Action Actions::*action) const {
    if (!actions_) return {nullptr, std::string_view()};
    return {actions_->profiler, (*actions_).*action};
  }

  RankActivity step_;
  std::optional<Actions> actions_;
};

/// The batch with its tensors on this rank's device; none where that is the CPU.
/// @throws ConfigError for a type of batch whose tensors lockstep cannot find
std::optional<AnyBatch> batch_on_device(const RunSetup& setup, const AnyBatch& batch);

/// Calls the transfer hooks of `data`, which may be null, and of the module, each of which may replace
/// `batch`, and puts the batch on this rank's device where no hook does. `step` is the context of that batch.
/// No hook is called for an empty batch.
inline void transfer(const RunSetup& setup, AnyDataModule* data, AnyBatch& batch, StepContext& step) {
  if (batch.empty()) return;
  for (const auto hook : {TransferHook::kBefore, TransferHook::kTransfer, TransferHook::kAfter}) {
    in_place("the transfer hooks of a batch", [&] {
      std::optional<AnyBatch> made;
      if (data != nullptr) made = data->any_transfer(hook, batch, step);
      if (!made) made = setup.module->any_transfer(hook, batch, step);
      if (!made && hook == TransferHook::kTransfer) made = batch_on_device(setup, batch);
      if (made) batch = *std::move(made);
    });
  }
}

/// Manual optimisation: runs training_step, which steps the optimizers itself. Returns what it gave where
/// that is one number, else 0.
Scalar run_manual_step(const RunSetup& setup, const StepMeasure& measure, const AnyBatch& batch,
                       StepContext& step);

}  // namespace lockstep::detail
