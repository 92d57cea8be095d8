#include "train/evaluation_loop.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <lockstep/torch.h>

#include "train/log_scope.h"
#include "train/step_measure.h"

namespace lockstep::detail {
namespace {

using EpochHook = NamedHook<TrainContext&>;
using BatchHook = NamedHook<StepContext&>;

// What the stages differ in: the names of their hooks, and that a prediction is something to keep.
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

void keep(RunState& state, const at::Tensor& prediction) {
  if (prediction.defined() && state.keeps_predictions)
    state.predictions.push_back(prediction.detach().to(at::kCPU));
}

void run_batches(RunState& state, AnyLoader& loader, const EvaluationHooks& hooks, std::int64_t max_batches,
                 EvaluationProgress& progress) {
  const auto stream =
      with_tensors(loader.stream(state.shard(/*pad=*/false), state.progress.epoch, progress.batches),
                   state.input_conversion());
  LogScopeGuard scope(state, state.evaluation_log, hooks.step_log);
  const StepMeasure measure(state, hooks.step_name);
  AnyBatch batch;
  while (progress.batches < max_batches && measure.next(*stream, batch)) {
    StepContext step(state, progress.batches, batch);
    state.evaluation_log.set_batch_size(batch.size());
    state.hooks.call(hooks.batch_start, step);
    at::Tensor prediction;
    {
      const auto forward = state.precision->forward_scope();
      const auto measured = measure.step();
      prediction = hooks.step(*state.module, batch, step);
    }
    ++progress.batches;
    const auto row_number = state.progress.evaluation_batches++;
    keep(state, prediction);
    hooks.batch_end(state.hooks, step, prediction);
    state.write_metrics(state.evaluation_log.step_row(), row_number);
  }
}

void evaluate(RunState& state, AnyLoader& loader, const EvaluationHooks& hooks, Stage stage,
              std::int64_t max_batches, EvaluationProgress& progress) {
  TrainContext context(state);
  // A checkpoint that is taken in a hook says that the hook has been called.
  const auto call_next = [&](const EpochHook& next, EvaluationPhase phase) {
    if (progress.phase >= phase) return;
    LogScopeGuard scope(state, state.evaluation_log, hooks.epoch_log);
    progress.phase = phase;
    state.hooks.call(next, context);
  };
  call_next(hooks.start, EvaluationPhase::kStart);
  call_next(hooks.epoch_start, EvaluationPhase::kEpochStart);
  if (progress.phase == EvaluationPhase::kEpochStart)
    run_batches(state, loader, hooks, max_batches, progress);
  call_next(hooks.epoch_end, EvaluationPhase::kEpochEnd);
  const auto row = state.evaluation_log.finish_epoch(state.communicator());
  const bool inside_fit = stage == Stage::kFit;
  state.write_metrics(row, inside_fit ? state.progress.batches_that_stepped : state.progress.global_step);
  progress.phase = EvaluationPhase::kEnd;
  state.hooks.call(hooks.end, context);
}

// What was made in it cannot be trained on: within fit it is none. Gloo's collectives refuse it.
std::optional<c10::InferenceMode> inference_mode(const RunState& state, Stage stage) {
  const bool inside_fit = stage == Stage::kFit || stage == Stage::kSanityCheck;
  if (inside_fit || !state.options.inference_mode || state.communicator().size() > 1) return std::nullopt;
  return std::optional<c10::InferenceMode>(std::in_place);
}

std::pair<BatchLimit, std::string_view> limit_of(const TrainerOptions& options, Stage stage) {
  if (stage == Stage::kTest) return {options.limit_test_batches, "limit_test_batches"};
  if (stage == Stage::kPredict) return {options.limit_predict_batches, "limit_predict_batches"};
  return {options.limit_val_batches, "limit_val_batches"};
}

}  // namespace

void run_evaluation_loop(RunState& state, AnyLoader& loader, Stage stage, std::int64_t max_batches) {
  EvaluationProgress progress;
  run_evaluation_loop(state, loader, stage, max_batches, progress);
}

void run_evaluation_loop(RunState& state, AnyLoader& loader, Stage stage, std::int64_t max_batches,
                         EvaluationProgress& progress) {
  if (progress.phase == EvaluationPhase::kEnd) return;
  state.num_evaluation_batches = max_batches;
  const auto& hooks = hooks_of(stage);
  const torch::NoGradGuard no_grad;
  const auto inference = inference_mode(state, stage);
  TrainContext context(state);
  ((*state.module).*hooks.model_eval)(context);
  try {
    evaluate(state, loader, hooks, stage, max_batches, progress);
  } catch (...) {
    ((*state.module).*hooks.model_train)(context);
    throw;
  }
  ((*state.module).*hooks.model_train)(context);
}

std::int64_t evaluation_batches(const RunState& state, const AnyLoader& loader, Stage stage) {
  const auto [limit, name] = limit_of(state.options, stage);
  // Rank 0 has the most batches. All ranks go by its count, so that they agree on what is refused.
  auto spec = state.shard(/*pad=*/false);
  const auto own = loader.num_batches(spec);
  spec.rank = 0;
  return std::min(own, limit.apply(loader.num_batches(spec), name));
}

}  // namespace lockstep::detail
