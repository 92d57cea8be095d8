// What every loop does with a batch: gets it from the loader, lets hooks transfer it, measures its step.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <lockstep/base/rank_status.h>
#include <lockstep/train/data_module.h>
#include <lockstep/train/module.h>

#include "base/failure_place.h"
#include "train/logging/class_name.h"
#include "train/logging/profiled_hook.h"
#include "train/loops/trainer_state.h"

namespace lockstep::detail {

/// The hooks that may replace a batch, in the order of their calls.
inline constexpr std::array kTransferHooks{std::pair("on_before_batch_transfer", TransferHook::kBefore),
                                           std::pair("transfer_batch_to_device", TransferHook::kTransfer),
                                           std::pair("on_after_batch_transfer", TransferHook::kAfter)};

/// Profiles the parts of a step under Lightning's names, and notes that this rank is in them. Borrows the
/// profiler. Without one each call tests a pointer and stores a number.
class StepMeasure {
 public:
  /// `data` is the run's data module, which may be null.
  StepMeasure(const RunSetup& setup, const AnyDataModule* data, std::string_view step_name)
      : step_(step_name == "training_step" ? RankActivity::kStep : RankActivity::kEvaluation) {
    if (!setup.profiler) return;
    const auto of_strategy = [&](std::string_view what) {
      return Action(hook_action_name("Strategy", strategy_name(setup), what), ActionCategory::kOperator);
    };
    const auto of_module = [&](std::string_view what) {
      return Action(hook_action_name(kModuleKind, class_name(*setup.module), what));
    };
    const auto of_data = [&](std::string_view what) {
      return data ? Action(hook_action_name(kDataModuleKind, class_name(*data), what)) : of_module(what);
    };
    const auto each_hook = [](const auto& make) {
      return std::array{make(kTransferHooks[0].first), make(kTransferHooks[1].first),
                        make(kTransferHooks[2].first)};
    };
    actions_.emplace(Actions{.profiler = setup.profiler.get(),
                             .next = Action(next_name(step_name), ActionCategory::kData),
                             .step = of_strategy(step_name),
                             .backward = of_strategy("backward"),
                             .optimizer_step = of_strategy("optimizer_step"),
                             .batch_to_device = of_strategy("batch_to_device"),
                             .run_training_batch = Action("run_training_batch"),
                             .step_with_closure = of_module("optimizer_step"),
                             .zero_grad = of_module("optimizer_zero_grad"),
                             .clipping = of_module("configure_gradient_clipping"),
                             .of_module = each_hook(of_module),
                             .of_data = each_hook(of_data)});
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
  ProfileScope batch_to_device() const { return measure(&Actions::batch_to_device); }
  ProfileScope run_training_batch() const { return measure(&Actions::run_training_batch); }
  /// A micro-batch, if it is the last of its window, whose forward and backward pass are a part of
  /// Lightning's optimizer_step.
  ProfileScope step_with_closure(bool is_last) const {
    if (!is_last) return {nullptr, std::string_view()};
    return measure(&Actions::step_with_closure);
  }
  ProfileScope zero_grad() const { return measure(&Actions::zero_grad); }
  ProfileScope clipping() const { return measure(&Actions::clipping); }
  /// `hook` of kTransferHooks, of the module or of the data module.
  ProfileScope transfer(std::size_t hook, bool is_of_data) const {
    if (!actions_) return {nullptr, std::string_view()};
    return {actions_->profiler, (is_of_data ? actions_->of_data : actions_->of_module)[hook]};
  }

 private:
  struct Actions {
    Profiler* profiler;
    Action next, step, backward, optimizer_step, batch_to_device;
    Action run_training_batch, step_with_closure, zero_grad, clipping;
    std::array<Action, kTransferHooks.size()> of_module, of_data;
  };

  static std::string next_name(std::string_view step_name) {
    if (step_name == "training_step") return "[_TrainingEpochLoop].train_dataloader_next";
    if (step_name == "predict_step") return "[_PredictionLoop].predict_next";
    return step_name == "test_step" ? "[_EvaluationLoop].test_next" : "[_EvaluationLoop].val_next";
  }

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
inline void transfer(const RunSetup& setup, const StepMeasure& measure, AnyDataModule* data, AnyBatch& batch,
                     StepContext& step) {
  if (batch.empty()) return;
  const auto whole = measure.batch_to_device();
  for (std::size_t i = 0; i < kTransferHooks.size(); ++i) {
    const auto hook = kTransferHooks[i].second;
    in_place("the transfer hooks of a batch", [&] {
      std::optional<AnyBatch> made;
      if (data != nullptr) {
        const auto measured = measure.transfer(i, /*is_of_data=*/true);
        made = data->any_transfer(hook, batch, step);
      }
      if (!made) {
        const auto measured = measure.transfer(i, /*is_of_data=*/false);
        made = setup.module->any_transfer(hook, batch, step);
        if (!made && hook == TransferHook::kTransfer) made = batch_on_device(setup, batch);
      }
      if (made) batch = *std::move(made);
    });
  }
}

/// Manual optimisation: runs training_step, which steps the optimizers itself. Returns what it gave where
/// that is one number, else 0.
Scalar run_manual_step(const RunSetup& setup, const StepMeasure& measure, const AnyBatch& batch,
                       StepContext& step);

}  // namespace lockstep::detail
