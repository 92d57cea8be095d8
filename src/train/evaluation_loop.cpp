#include "train/evaluation_loop.h"

#include <algorithm>

#include <lockstep/torch.h>

#include "train/log_scope.h"

namespace lockstep::detail {
namespace {

// The hooks of validation and test differ only in their names.
struct EvaluationHooks {
  void (Hooks::*start)(TrainContext&);
  void (Hooks::*end)(TrainContext&);
  void (Hooks::*epoch_start)(TrainContext&);
  void (Hooks::*epoch_end)(TrainContext&);
  void (Hooks::*batch_start)(StepContext&);
  void (Hooks::*batch_end)(StepContext&);
  void (AnyModule::*step)(const AnyBatch&, StepContext&);
  void (AnyModule::*model_eval)(TrainContext&);
  void (AnyModule::*model_train)(TrainContext&);
};

constexpr EvaluationHooks kValidationHooks{
    &Hooks::on_validation_start,          &Hooks::on_validation_end,
    &Hooks::on_validation_epoch_start,    &Hooks::on_validation_epoch_end,
    &Hooks::on_validation_batch_start,    &Hooks::on_validation_batch_end,
    &AnyModule::any_validation_step,      &AnyModule::on_validation_model_eval,
    &AnyModule::on_validation_model_train};
constexpr EvaluationHooks kTestHooks{&Hooks::on_test_start,          &Hooks::on_test_end,
                                     &Hooks::on_test_epoch_start,    &Hooks::on_test_epoch_end,
                                     &Hooks::on_test_batch_start,    &Hooks::on_test_batch_end,
                                     &AnyModule::any_test_step,      &AnyModule::on_test_model_eval,
                                     &AnyModule::on_test_model_train};

void run_batches(RunState& state, AnyLoader& loader, const EvaluationHooks& hooks, std::int64_t max_batches,
                 EvaluationProgress& progress) {
  const auto stream =
      with_tensors(loader.stream(state.shard(/*pad=*/false), state.progress.epoch, progress.batches),
                   state.input_conversion());
  LogScopeGuard scope(state, state.evaluation_log, kEvalStepLog);
  AnyBatch batch;
  while (progress.batches < max_batches && stream->next(batch)) {
    StepContext step(state, progress.batches, batch.size());
    state.evaluation_log.set_batch_size(batch.size());
    state.hooks.call(hooks.batch_start, step);
    {
      const auto forward = state.precision->forward_scope();
      ((*state.module).*hooks.step)(batch, step);
    }
    ++progress.batches;
    const auto row_number = state.progress.evaluation_batches++;
    state.hooks.call(hooks.batch_end, step);
    state.write_metrics(state.evaluation_log.step_row(), row_number);
  }
}

void evaluate(RunState& state, AnyLoader& loader, const EvaluationHooks& hooks, Stage stage,
              std::int64_t max_batches, EvaluationProgress& progress) {
  TrainContext context(state);
  // A checkpoint that is taken in a hook says that the hook has been called.
  const auto call_next = [&](void (Hooks::*hook)(TrainContext&), EvaluationPhase phase) {
    if (progress.phase >= phase) return;
    LogScopeGuard scope(state, state.evaluation_log, kEpochLog);
    progress.phase = phase;
    state.hooks.call(hook, context);
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

}  // namespace

void run_evaluation_loop(RunState& state, AnyLoader& loader, Stage stage, std::int64_t max_batches) {
  EvaluationProgress progress;
  run_evaluation_loop(state, loader, stage, max_batches, progress);
}

void run_evaluation_loop(RunState& state, AnyLoader& loader, Stage stage, std::int64_t max_batches,
                         EvaluationProgress& progress) {
  if (progress.phase == EvaluationPhase::kEnd) return;
  const auto& hooks = stage == Stage::kTest ? kTestHooks : kValidationHooks;
  const torch::NoGradGuard no_grad;
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
  const bool test = stage == Stage::kTest;
  const auto& limit = test ? state.options.limit_test_batches : state.options.limit_val_batches;
  // Rank 0 has the most batches. All ranks go by its count, so that they agree on what is refused.
  auto spec = state.shard(/*pad=*/false);
  const auto own = loader.num_batches(spec);
  spec.rank = 0;
  return std::min(own,
                  limit.apply(loader.num_batches(spec), test ? "limit_test_batches" : "limit_val_batches"));
}

}  // namespace lockstep::detail
