#include "train/loops/evaluation_loop.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <lockstep/base/log.h>
#include <lockstep/torch.h>

#include "train/logging/log_scope.h"
#include "train/loops/step_measure.h"
#include "train/loops/transfer_batch.h"

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

void keep(RunState& state, std::int64_t loader, const at::Tensor& prediction) {
  if (prediction.defined() && state.keeps_predictions)
    state.predictions[static_cast<std::size_t>(loader)].push_back(prediction.detach().to(at::kCPU));
}

// One pass: `limits` are the batches of each of `loaders` on this rank.
struct Pass {
  const LoaderList& loaders;
  const std::vector<std::int64_t>& limits;
  const EvaluationHooks& hooks;
  EvaluationProgress& progress;
  const std::function<void()>& between_batches;

  std::size_t loader() const { return static_cast<std::size_t>(progress.loader); }
};

void run_batch(RunState& state, const Pass& pass, const StepMeasure& measure, const AnyBatch& loaded) {
  const auto batch = transferred(state, loaded, pass.progress.batches, pass.progress.loader);
  StepContext step(state, pass.progress.batches, batch, pass.progress.loader);
  state.evaluation_log.set_batch_size(batch.size());
  state.hooks.call(pass.hooks.batch_start, step);
  at::Tensor prediction;
  {
    const auto forward = state.precision->forward_scope();
    const auto measured = measure.step();
    prediction = pass.hooks.step(*state.module, batch, step);
  }
  ++pass.progress.batches;
  const auto row_number = state.progress.evaluation_batches++;
  keep(state, pass.progress.loader, prediction);
  pass.hooks.batch_end(state.hooks, step, prediction);
  state.write_metrics(state.evaluation_log.step_row(), row_number);
}

// How many batches every rank has of the loader that runs, where they know without a word: the last rank has
// the fewest of numbered samples.
std::int64_t batches_of_all(const RunState& state, const Pass& pass) {
  const auto own = pass.limits[pass.loader()];
  if (state.communicator().size() == 1) return own;
  const auto& loader = *pass.loaders[pass.loader()];
  if (loader.num_samples() == kUnknownLength) return 0;
  auto spec = state.shard(/*pad=*/false);
  spec.rank = spec.num_replicas - 1;
  return std::min(loader.num_batches(spec), own);
}

// Where forward passes communicate, ranks run them together. A rank that has more batches than others runs
// the last ones by itself, on the whole module, which all ranks gather when the first of them is done.
class SharedForward {
 public:
  SharedForward(const RunState& state, std::int64_t batches) : state_(state) {
    if (!state.strategy->shares_forward(*state.module)) return;
    const auto counts = at::empty({state.communicator().size()}, at::kLong);
    state.communicator().all_gather(counts, at::scalar_tensor(batches, at::kLong).view({1}));
    fewest_ = counts.min().item<std::int64_t>();
    is_uneven_ = fewest_ < counts.max().item<std::int64_t>();
  }

  void before_batch(std::int64_t index) { hold_if(index == fewest_); }
  // For the ranks with the fewest.
  void after_batches(std::int64_t count) { hold_if(count == fewest_); }

 private:
  void hold_if(bool is_time) {
    if (is_uneven_ && is_time) whole_ = state_.strategy->hold_whole(*state_.module);
  }

  const RunState& state_;
  std::int64_t fewest_ = 0;
  bool is_uneven_ = false;
  std::shared_ptr<void> whole_;
};

// The rest of the loader that runs.
void run_loader(RunState& state, const Pass& pass) {
  const auto& loader = *pass.loaders[pass.loader()];
  state.num_evaluation_batches = pass.limits[pass.loader()];
  const auto stream =
      with_tensors(loader.stream(state.shard(/*pad=*/false), state.progress.epoch, pass.progress.batches),
                   state.input_conversion());
  auto scope = pass.hooks.step_log;
  if (pass.loaders.size() > 1) scope.dataloader_idx = pass.progress.loader;
  const LogScopeGuard guard(state, state.evaluation_log, scope);
  const StepMeasure measure(state, pass.hooks.step_name);
  const auto shared = pass.between_batches ? batches_of_all(state, pass) : 0;
  SharedForward forward(state, pass.limits[pass.loader()]);
  AnyBatch batch;
  while (pass.progress.batches < pass.limits[pass.loader()] && measure.next(*stream, batch)) {
    forward.before_batch(pass.progress.batches);
    run_batch(state, pass, measure, batch);
    if (pass.progress.batches < shared) pass.between_batches();
  }
  forward.after_batches(pass.progress.batches);
}

void run_loaders(RunState& state, const Pass& pass) {
  auto& progress = pass.progress;
  for (; pass.loader() < pass.loaders.size(); ++progress.loader) {
    run_loader(state, pass);
    if (pass.loaders.size() > 1) state.evaluation_log.finish_loader(state.communicator(), progress.loader);
    progress.batches = 0;
  }
}

Measurement next_validation(const RunState& state) {
  return {.number = state.board.num_validations + 1,
          .epoch = state.progress.epoch,
          .global_step = state.progress.global_step};
}

void evaluate(RunState& state, const Pass& pass, Stage stage) {
  TrainContext context(state);
  const auto& hooks = pass.hooks;
  auto& progress = pass.progress;
  const bool inside_fit = stage == Stage::kFit;
  if (inside_fit) state.board.validation = next_validation(state);
  // A checkpoint that is taken in a hook says that the hook has been called.
  const auto call_next = [&](const EpochHook& next, EvaluationPhase phase) {
    if (progress.phase >= phase) return;
    LogScopeGuard scope(state, state.evaluation_log, hooks.epoch_log);
    progress.phase = phase;
    state.hooks.call(next, context);
  };
  call_next(hooks.start, EvaluationPhase::kStart);
  call_next(hooks.epoch_start, EvaluationPhase::kEpochStart);
  if (progress.phase == EvaluationPhase::kEpochStart) run_loaders(state, pass);
  call_next(hooks.epoch_end, EvaluationPhase::kEpochEnd);
  const auto row = state.evaluation_log.finish_epoch(state.communicator());
  if (inside_fit) ++state.board.num_validations;
  state.write_metrics(row, inside_fit ? state.progress.batches_that_stepped : state.progress.global_step);
  if (stage != Stage::kSanityCheck && !inside_fit) state.results = by_loader(row, pass.loaders.size());
  progress.phase = EvaluationPhase::kEnd;
  const LogScopeGuard closed(state, state.evaluation_log, kNoLog);
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
  const bool is_overfit = !options.overfit_batches.is_zero();
  return {options.limit_val_batches, is_overfit ? "overfit_batches" : "limit_val_batches"};
}

// Of numbered samples rank 0 has the most batches; which rank has of streams, only the ranks can say.
std::int64_t most_batches(const RunState& state, const AnyLoader& loader) {
  auto spec = state.shard(/*pad=*/false);
  if (state.communicator().size() > 1 && loader.num_samples() == kUnknownLength) {
    const auto most = torch::full({1}, loader.num_batches(spec), torch::kLong);
    state.communicator().all_reduce(most, ReduceOp::kMax);
    return most.item<std::int64_t>();
  }
  spec.rank = 0;
  return loader.num_batches(spec);
}

}  // namespace

EvaluationLimits evaluation_limits(const RunState& state, const LoaderList& loaders, Stage stage,
                                   std::int64_t at_most) {
  EvaluationLimits limits;
  const auto [option, name] = limit_of(state.options, stage);
  for (const auto& loader : loaders) {
    // All ranks go by one count, so that they agree on what is refused, or empty.
    const auto limit = std::min(option.apply(most_batches(state, *loader), name), at_most);
    limits.batches.push_back(std::min(loader->num_batches(state.shard(/*pad=*/false)), limit));
    limits.is_empty = limits.is_empty && limit == 0;
  }
  return limits;
}

void warn_of_empty(const RunState& state, const LoaderList& loaders, Stage stage) {
  if (!state.is_global_zero()) return;
  auto spec = state.shard(/*pad=*/false);
  spec.rank = 0;
  for (std::size_t i = 0; i < loaders.size(); ++i) {
    if (loaders[i]->num_samples() == kUnknownLength || loaders[i]->num_batches(spec) > 0) continue;
    log_warning("loader " + std::to_string(i) + " of " + std::string(stage_name(stage)) +
                " has no batch: nothing comes of it");
  }
}

void run_evaluation_loop(RunState& state, const LoaderList& loaders, Stage stage,
                         const EvaluationLimits& limits) {
  EvaluationProgress progress;
  run_evaluation_loop(state, loaders, stage, limits, progress);
}

void run_evaluation_loop(RunState& state, const LoaderList& loaders, Stage stage,
                         const EvaluationLimits& limits, EvaluationProgress& progress,
                         const std::function<void()>& between_batches) {
  if (limits.is_empty || progress.phase == EvaluationPhase::kEnd) return;
  const Pass pass{loaders, limits.batches, hooks_of(stage), progress, between_batches};
  const torch::NoGradGuard no_grad;
  const auto inference = inference_mode(state, stage);
  TrainContext context(state);
  ((*state.module).*pass.hooks.model_eval)(context);
  try {
    evaluate(state, pass, stage);
  } catch (...) {
    ((*state.module).*pass.hooks.model_train)(context);
    throw;
  }
  ((*state.module).*pass.hooks.model_train)(context);
}

}  // namespace lockstep::detail
