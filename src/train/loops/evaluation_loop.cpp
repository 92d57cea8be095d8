#include "train/loops/evaluation_loop.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/torch.h>

#include "base/failure_place.h"
#include "train/logging/run_log.h"
#include "train/loops/batch_step.h"

namespace lockstep::detail {
namespace {

using EpochHook = NamedHook<TrainContext&>;
using BatchHook = NamedHook<StepContext&>;

// The hooks of a stage, and what the stage does with a prediction.
struct EvaluationHooks {
  EpochHook start, end, epoch_start, epoch_end;
  BatchHook batch_start;
  void (*batch_end)(HookList&, StepContext&, const at::Tensor& prediction);
  at::Tensor (*step)(AnyModule&, const AnyBatch&, StepContext&);
  std::string_view step_name;
  void (AnyModule::*model_eval)(TrainContext&);
  void (AnyModule::*model_train)(TrainContext&);
  LogScope epoch_log, step_log;
};

constexpr EvaluationHooks kValidationHooks{
    .start = hook::on_validation_start,
    .end = hook::on_validation_end,
    .epoch_start = hook::on_validation_epoch_start,
    .epoch_end = hook::on_validation_epoch_end,
    .batch_start = hook::on_validation_batch_start,
    .batch_end = [](HookList& hooks, StepContext& step,
                    const at::Tensor&) { hooks.call(hook::on_validation_batch_end, step); },
    .step =
        [](AnyModule& module, const AnyBatch& batch, StepContext& step) {
          module.any_validation_step(batch, step);
          return at::Tensor();
        },
    .step_name = "validation_step",
    .model_eval = &AnyModule::on_validation_model_eval,
    .model_train = &AnyModule::on_validation_model_train,
    .epoch_log = kEpochLog,
    .step_log = kEvalStepLog};
constexpr EvaluationHooks kTestHooks{
    .start = hook::on_test_start,
    .end = hook::on_test_end,
    .epoch_start = hook::on_test_epoch_start,
    .epoch_end = hook::on_test_epoch_end,
    .batch_start = hook::on_test_batch_start,
    .batch_end = [](HookList& hooks, StepContext& step,
                    const at::Tensor&) { hooks.call(hook::on_test_batch_end, step); },
    .step =
        [](AnyModule& module, const AnyBatch& batch, StepContext& step) {
          module.any_test_step(batch, step);
          return at::Tensor();
        },
    .step_name = "test_step",
    .model_eval = &AnyModule::on_test_model_eval,
    .model_train = &AnyModule::on_test_model_train,
    .epoch_log = kEpochLog,
    .step_log = kEvalStepLog};
constexpr EvaluationHooks kPredictHooks{
    .start = hook::on_predict_start,
    .end = hook::on_predict_end,
    .epoch_start = hook::on_predict_epoch_start,
    .epoch_end = hook::on_predict_epoch_end,
    .batch_start = hook::on_predict_batch_start,
    .batch_end =
        [](HookList& hooks, StepContext& step, const at::Tensor& prediction) {
          hooks.call(hook::on_predict_batch_end, step, prediction);
        },
    .step = [](AnyModule& module, const AnyBatch& batch,
               StepContext& step) { return module.any_predict_step(batch, step); },
    .step_name = "predict_step",
    .model_eval = &AnyModule::on_predict_model_eval,
    .model_train = &AnyModule::on_predict_model_train,
    .epoch_log = kNoLog,
    .step_log = kNoLog};

const EvaluationHooks& hooks_of(Stage stage) {
  if (stage == Stage::kTest) return kTestHooks;
  return stage == Stage::kPredict ? kPredictHooks : kValidationHooks;
}

// Under strategies whose forward pass communicates all ranks must run it together. A rank that has more
// batches than others runs the rest alone, on the whole module, which all ranks gather before.
class SharedForward {
 public:
  SharedForward(const RunSetup& setup, const LoaderLimit& limit)
      : setup_(setup),
        fewest_(limit.fewest),
        is_uneven_(limit.fewest < limit.most && setup.strategy->shares_forward(*setup.module)) {}

  void before_batch(std::int64_t index) { hold_if(index == fewest_); }
  // Called at the end of the loader, for the ranks with the fewest batches.
  void after_batches(std::int64_t count) { hold_if(count == fewest_); }

 private:
  void hold_if(bool is_time) {
    if (is_uneven_ && is_time) whole_ = setup_.strategy->hold_whole(*setup_.module);
  }

  const RunSetup& setup_;
  std::int64_t fewest_;
  bool is_uneven_;
  std::shared_ptr<void> whole_;
};

// One pass over `loaders`, as far as `limits` say of each.
class EvaluationPass {
 public:
  EvaluationPass(TrainerState& state, const LoaderList& loaders, Stage stage,
                 const std::vector<LoaderLimit>& limits, EvaluationProgress& progress,
                 const std::function<void()>& between_batches)
      : state_(state),
        loaders_(loaders),
        stage_(stage),
        limits_(limits),
        progress_(progress),
        between_batches_(between_batches) {}

  void run();

 private:
  std::size_t loader() const { return static_cast<std::size_t>(progress_.loader); }
  bool is_inside_fit() const { return stage_ == Stage::kFit; }
  void evaluate();
  void run_loaders();
  void run_loader();
  void run_batch(const StepMeasure& measure, AnyBatch& batch);
  at::Tensor run_step(const StepMeasure& measure, const AnyBatch& batch, StepContext& step);
  void write_step_row();
  void keep(const at::Tensor& prediction);
  std::string place() const;

  TrainerState& state_;
  const LoaderList& loaders_;
  Stage stage_;
  const std::vector<LoaderLimit>& limits_;
  const EvaluationHooks& hooks_ = hooks_of(stage_);
  EvaluationProgress& progress_;
  const std::function<void()>& between_batches_;
};

void EvaluationPass::keep(const at::Tensor& prediction) {
  if (prediction.defined() && state_.predictions.are_kept)
    state_.predictions.by_loader[loader()].push_back(prediction.detach().to(at::kCPU));
}

// A batch that fails runs again where a run goes on from here, and so its row is not written.
at::Tensor EvaluationPass::run_step(const StepMeasure& measure, const AnyBatch& batch,
                                    StepContext& step) try {
  state_.hooks.call(hooks_.batch_start, step);
  const auto forward = state_.setup.precision->forward_scope();
  const auto measured = measure.step();
  return in_place(hooks_.step_name, [&] { return hooks_.step(*state_.setup.module, batch, step); });
} catch (...) {
  state_.log.evaluation.drop_step_values();
  throw;
}

// The row of the last batch.
void EvaluationPass::write_step_row() {
  state_.log.write_metrics(state_.log.evaluation.step_row(), state_.progress.epoch,
                           state_.progress.evaluation_batches - 1);
}

void EvaluationPass::run_batch(const StepMeasure& measure, AnyBatch& batch) {
  StepContext step(state_, progress_.batches, batch, progress_.loader);
  transfer(state_.setup, measure, state_.data.module.get(), batch, step);
  state_.log.evaluation.set_batch_size(batch.size());
  const auto prediction = run_step(measure, batch, step);
  ++progress_.batches;
  ++state_.progress.evaluation_batches;
  keep(prediction);
  hooks_.batch_end(state_.hooks, step, prediction);
  write_step_row();
}

// Runs the rest of the current loader.
void EvaluationPass::run_loader() {
  const auto& limit = limits_[loader()];
  state_.status.num_evaluation_batches = limit.batches;
  const auto stream = with_tensors(
      loaders_[loader()]->stream(state_.setup.shard(/*pad=*/false), state_.progress.epoch, progress_.batches),
      state_.setup.input_conversion());
  auto scope = hooks_.step_log;
  if (loaders_.size() > 1) scope.dataloader_idx = progress_.loader;
  const LogScopeGuard guard(state_.log, state_.log.evaluation, scope);
  const StepMeasure measure(state_.setup, state_.data.module.get(), hooks_.step_name);
  const auto shared = between_batches_ && limit.is_known ? limit.fewest : 0;
  SharedForward forward(state_.setup, limit);
  AnyBatch batch;
  while (progress_.batches < limit.batches && measure.next(*stream, batch)) {
    forward.before_batch(progress_.batches);
    run_batch(measure, batch);
    if (progress_.batches < shared) between_batches_();
  }
  forward.after_batches(progress_.batches);
}

void EvaluationPass::run_loaders() {
  write_step_row();  // of a batch behind whose hook the checkpoint was taken
  for (; loader() < loaders_.size(); ++progress_.loader) {
    run_loader();
    if (loaders_.size() > 1) {
      state_.setup.announce_exchange();
      state_.log.evaluation.finish_loader(state_.setup.communicator(), progress_.loader);
    }
    progress_.batches = 0;
  }
}

void EvaluationPass::evaluate() {
  TrainContext context(state_);
  auto& log = state_.log;
  const auto& fit = state_.progress;
  if (is_inside_fit())
    log.board.validation = {
        .number = log.board.num_validations + 1, .epoch = fit.epoch, .global_step = fit.global_step};
  // The phase is set before the hook is called, so that a checkpoint taken in the hook does not call it
  // again.
  const auto call_next = [&](const EpochHook& next, EvaluationPhase phase) {
    if (progress_.phase >= phase) return;
    LogScopeGuard scope(log, log.evaluation, hooks_.epoch_log);
    progress_.phase = phase;
    state_.hooks.call(next, context);
  };
  call_next(hooks_.start, EvaluationPhase::kStart);
  call_next(hooks_.epoch_start, EvaluationPhase::kEpochStart);
  if (progress_.phase == EvaluationPhase::kEpochStart) run_loaders();
  if (progress_.phase < EvaluationPhase::kEpochEnd) {
    state_.setup.announce_exchange();
    log.evaluation.show_epoch(state_.setup.communicator());
  }
  call_next(hooks_.epoch_end, EvaluationPhase::kEpochEnd);
  const auto row = log.evaluation.finish_epoch(state_.setup.communicator());
  if (is_inside_fit()) ++log.board.num_validations;
  log.write_metrics(row, fit.epoch, is_inside_fit() ? fit.batches_that_stepped : fit.global_step);
  if (stage_ != Stage::kSanityCheck && !is_inside_fit()) log.results = by_loader(row, loaders_.size());
  progress_.phase = EvaluationPhase::kEnd;
  const LogScopeGuard closed(log, log.evaluation, kNoLog);
  state_.hooks.call(hooks_.end, context);
}

// " of step 4 (epoch 0, batch 1)", for errors. Only a validation within fit has a step.
std::string EvaluationPass::place() const {
  const auto& fit = state_.progress;
  std::vector<std::string> parts;
  if (is_inside_fit()) parts.push_back("epoch " + std::to_string(fit.epoch));
  if (loaders_.size() > 1) parts.push_back("loader " + std::to_string(progress_.loader));
  if (progress_.phase == EvaluationPhase::kEpochStart)
    parts.push_back("batch " + std::to_string(progress_.batches));
  std::string text = is_inside_fit() ? " of step " + std::to_string(fit.global_step) : "";
  if (stage_ == Stage::kSanityCheck) text = " of the sanity check";
  for (std::size_t i = 0; i < parts.size(); ++i) text += (i == 0 ? " (" : ", ") + parts[i];
  return parts.empty() ? text : text + ")";
}

void EvaluationPass::run() {
  auto& module = *state_.setup.module;
  TrainContext context(state_);
  (module.*hooks_.model_eval)(context);
  try {
    evaluate();
  } catch (...) {
    note_failure_detail(place());
    (module.*hooks_.model_train)(context);
    throw;
  }
  (module.*hooks_.model_train)(context);
}

// Tensors made in inference mode cannot be trained on, so it is not used within fit; and Gloo's collectives
// refuse them, so it is not used by several ranks.
std::optional<c10::InferenceMode> inference_mode(const RunSetup& setup, Stage stage) {
  const bool inside_fit = stage == Stage::kFit || stage == Stage::kSanityCheck;
  if (inside_fit || !setup.options.inference_mode || setup.communicator().size() > 1) return std::nullopt;
  return std::optional<c10::InferenceMode>(std::in_place);
}

std::pair<BatchLimit, std::string_view> limit_of(const TrainerOptions& options, Stage stage) {
  if (stage == Stage::kTest) return {options.limit_test_batches, "limit_test_batches"};
  if (stage == Stage::kPredict) return {options.limit_predict_batches, "limit_predict_batches"};
  const bool is_overfit = !options.overfit_batches.is_zero();
  return {options.limit_val_batches, is_overfit ? "overfit_batches" : "limit_val_batches"};
}

// What a rank has of a loader.
struct LoaderCount {
  std::int64_t batches;
  std::int64_t is_stream;
};
using LoaderCounts = std::vector<LoaderCount>;

LoaderCounts own_counts(const RunSetup& setup, const LoaderList& loaders) {
  LoaderCounts counts;
  for (const auto& loader : loaders)
    counts.push_back({.batches = loader->num_batches(setup.shard(/*pad=*/false)),
                      .is_stream = loader->num_samples() == kUnknownLength});
  return counts;
}

[[noreturn]] void refuse_other_loaders(Stage stage, std::size_t expected, std::size_t got, std::size_t rank) {
  throw ConfigError("train",
                    {.what = "the ranks have other numbers of loaders for " + std::string(stage_name(stage)),
                     .expected = std::to_string(expected) + ", as rank 0 has",
                     .got = std::to_string(got),
                     .where = "rank " + std::to_string(rank)});
}

// By rank. Collective.
std::vector<LoaderCounts> all_counts(const RunSetup& setup, const LoaderList& loaders, Stage stage) {
  const auto own = own_counts(setup, loaders);
  if (setup.communicator().size() == 1) return {own};
  setup.announce_exchange();
  const auto* const bytes = reinterpret_cast<const char*>(own.data());
  const auto gathered = setup.communicator().all_gather_bytes({bytes, own.size() * sizeof(LoaderCount)});
  std::vector<LoaderCounts> all;
  for (const auto& text : gathered) {
    const auto count = text.size() / sizeof(LoaderCount);
    const auto expected = gathered.front().size() / sizeof(LoaderCount);
    if (count != expected) refuse_other_loaders(stage, expected, count, all.size());
    auto& of_rank = all.emplace_back(count);
    if (count > 0) std::memcpy(of_rank.data(), text.data(), text.size());
  }
  return all;
}

}  // namespace

EvaluationLimits evaluation_limits(const RunSetup& setup, const LoaderList& loaders, Stage stage,
                                   std::int64_t at_most) {
  EvaluationLimits limits;
  const auto [option, name] = limit_of(setup.options, stage);
  const auto counts = all_counts(setup, loaders, stage);
  const auto rank = static_cast<std::size_t>(counts.size() == 1 ? 0 : setup.communicator().rank());
  for (std::size_t i = 0; i < loaders.size(); ++i) {
    const auto batches = [i](const LoaderCounts& of_rank) { return of_rank[i].batches; };
    const auto [fewest, most] = std::ranges::minmax(counts | std::views::transform(batches));
    // All ranks use the same count, so that they refuse the same limits.
    const auto limit = std::min(option.apply(most, name), at_most);
    limits.loaders.push_back({.batches = std::min(counts[rank][i].batches, limit),
                              .fewest = std::min(fewest, limit),
                              .most = std::min(most, limit),
                              .is_known = std::ranges::none_of(
                                  counts, [i](const auto& of_rank) { return of_rank[i].is_stream != 0; }),
                              .has_none_anywhere = most == 0});
    limits.is_empty = limits.is_empty && limit == 0;
  }
  return limits;
}

void warn_of_empty(const RunSetup& setup, const EvaluationLimits& limits, Stage stage) {
  if (!setup.is_global_zero()) return;
  for (std::size_t i = 0; i < limits.loaders.size(); ++i) {
    if (!limits.loaders[i].is_known || !limits.loaders[i].has_none_anywhere) continue;
    log_warning("loader " + std::to_string(i) + " of " + std::string(stage_name(stage)) +
                " has no batch: it is skipped");
  }
}

void run_evaluation_loop(TrainerState& state, const LoaderList& loaders, Stage stage,
                         const EvaluationLimits& limits, EvaluationProgress& progress,
                         const std::function<void()>& between_batches) {
  if (limits.is_empty || progress.phase == EvaluationPhase::kEnd) return;
  const torch::NoGradGuard no_grad;
  const auto inference = inference_mode(state.setup, stage);
  EvaluationPass(state, loaders, stage, limits.loaders, progress, between_batches).run();
}

}  // namespace lockstep::detail
