// What a run does before its loop: which callbacks there are and the order of their hooks, the data, the
// module and its first weights.
#include "train/run_lifecycle.h"

#include <algorithm>
#include <typeinfo>
#include <utility>

#include <c10/util/ScopeExit.h>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/base/rank_status.h>
#include <lockstep/checkpoint/weights.h>
#include <lockstep/parallel/deferred_init.h>
#include <lockstep/state/module_state.h>
#include <lockstep/train/callbacks/model_summary.h>
#include <lockstep/train/callbacks/progress_bar.h>

#include "checkpoint/stored_weights.h"
#include "parallel/deferred/deferred_tensor.h"
#include "train/callbacks/deepspeed_reports.h"
#include "train/loops/evaluation_loop.h"

namespace lockstep::detail {

void begin_run(RunSetup& setup, RunLog& log, Stage stage, std::shared_ptr<AnyModule> module) {
  set_outcome(RankOutcome::kRunning, {});  // a program may have caught what ended the run before
  setup.stage = stage;
  setup.module = std::move(module);
  log.board = {};
  log.train.discard();
  log.evaluation.discard();
  setup.optimizers.clear();
  setup.trained.clear();
}

namespace {

// Whether the program has a callback of this kind. At most one is allowed where `flag` is on, and none where
// it is off.
template <class Kind>
bool brings(const std::vector<std::shared_ptr<Callback>>& callbacks, const char* kind, const char* flag,
            bool is_on) {
  const auto found = std::ranges::count_if(
      callbacks, [](const auto& callback) { return dynamic_cast<const Kind*>(callback.get()) != nullptr; });
  if (found <= (is_on ? 1 : 0)) return found > 0;
  throw ConfigError("train", {.what = std::string(kind) + " among the callbacks",
                              .expected = is_on ? "one" : std::string("none with ") + flag + " = false",
                              .got = std::to_string(found)});
}

// Adds, on rank 0, the callbacks for the reports that DeepSpeed's file asks for. All ranks check the file.
void add_deepspeed_reports(const RunSetup& setup, std::vector<std::shared_ptr<Callback>>& callbacks) {
  const auto& config = *setup.deepspeed;
  const auto comms_log =
      config.comms_logger.enabled ? std::make_shared<CommsLog>(config.comms_logger) : nullptr;
  if (!setup.is_global_zero()) return;
  if (DeepSpeedReports::are_wanted(config))
    callbacks.push_back(std::make_shared<DeepSpeedReports>(
        config, [&setup] { return std::as_const(*setup.precision).grad_scaler(); }));
  if (config.memory_breakdown) callbacks.push_back(std::make_shared<MemoryBreakdown>());
  if (comms_log) callbacks.push_back(comms_log);
}

// Callbacks of the module replace the Trainer's callbacks of the same class.
std::vector<std::shared_ptr<Callback>> wanted_callbacks(const RunSetup& setup) {
  auto callbacks = setup.options.callbacks;
  for (auto& own : setup.module->configure_callbacks()) {
    std::erase_if(callbacks, [&](const auto& other) { return typeid(*other) == typeid(*own); });
    callbacks.push_back(std::move(own));
  }
  const auto& options = setup.options;
  const bool has_bar =
      brings<ProgressBar>(callbacks, "progress bars", "enable_progress_bar", options.enable_progress_bar);
  const bool has_summary =
      brings<ModelSummary>(callbacks, "ModelSummary", "enable_model_summary", options.enable_model_summary);
  if (setup.is_global_zero()) {
    if (options.enable_progress_bar && !has_bar) callbacks.push_back(std::make_shared<TQDMProgressBar>());
    if (options.enable_model_summary && !has_summary && setup.stage == Stage::kFit)
      callbacks.push_back(std::make_shared<ModelSummary>());
  }
  if (setup.stage == Stage::kFit && setup.deepspeed) add_deepspeed_reports(setup, callbacks);
  std::ranges::stable_partition(
      callbacks, [](const auto& callback) { return callback->place() != CallbackPlace::kCheckpoint; });
  std::ranges::stable_partition(
      callbacks, [](const auto& callback) { return callback->place() == CallbackPlace::kTuner; });
  return callbacks;
}

}  // namespace

void collect_hooks(RunSetup& setup, HookList& hooks) {
  setup.callbacks = wanted_callbacks(setup);
  hooks.clear(setup.profiler.get());
  for (const auto& callback : setup.callbacks) {
    const auto place = callback->place();
    const bool monitors = place == CallbackPlace::kMonitor || place == CallbackPlace::kCheckpoint;
    hooks.add(*callback, "Callback", monitors);
  }
  hooks.add(*setup.module, "Module", false);
}

namespace {

// Defers the initialization of tensors where the strategy wants that.
std::optional<DeferredInit> deferral(const RunSetup& setup) {
  return setup.strategy->defers_init() ? std::optional<DeferredInit>(std::in_place) : std::nullopt;
}

// Tensors whose initialization is deferred are read when they are materialized.
IncompatibleKeys load_first_weights(const RunSetup& setup, const std::filesystem::path& path) {
  const torch::NoGradGuard no_grad;
  const auto put = [](const at::Tensor& tensor, const StoredTensor& stored) {
    const auto read = [read = stored.read, type = tensor.scalar_type()] { return read().to(type); };
    if (!replace_history(tensor, read)) tensor.copy_(read());
  };
  return load_weights(path, *setup.module, setup.module->strict_loading(), put);
}

}  // namespace

void forget_first_values(const AnyModule& module) {
  const auto forget = [](const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    replace_history(tensor, [shape = tensor.sizes().vec(), dtype = tensor.scalar_type()] {
      return at::zeros(shape, dtype);
    });
  };
  for (const auto& parameter : module.parameters()) forget(parameter);
  for (const auto& buffer : module.buffers()) forget(buffer);
}

void prepare_module(RunSetup& setup, HookList& hooks, TrainContext& context) {
  if (setup.environment->local_rank() == 0) setup.module->prepare_data();
  setup.strategy->barrier();
  hooks.call(hook::setup, context);
  {
    const auto scope = deferral(setup);
    setup.module->configure_model(context);
  }
  // Loaded once: a later test is about the weights that fit has trained. The strategy sends rank 0's weights
  // to all ranks.
  const auto weights = std::exchange(setup.options.run.init_weights, {});
  if (!weights.empty() && setup.is_global_zero())
    warn_of(load_first_weights(setup, weights), weights.string());
  const auto scope = deferral(setup);
  setup.precision->convert_module(*setup.module);
}

void sanity_check(TrainerState& state) {
  const auto wanted = state.setup.options.num_sanity_val_steps;
  if (state.data.val.empty() || wanted == 0) return;
  const auto limits =
      evaluation_limits(state.setup, state.data.val, Stage::kValidate, wanted < 0 ? kUnknownLength : wanted);

  const auto device = state.setup.strategy->root_device();
  const auto random = random_state(device);
  state.setup.stage = Stage::kSanityCheck;
  state.hooks.call(hook::on_sanity_check_start, state.context);
  {
    std::vector<std::shared_ptr<Logger>> silenced;
    std::swap(silenced, state.log.loggers);
    const auto heard_again = c10::make_scope_exit([&] { std::swap(silenced, state.log.loggers); });
    EvaluationProgress progress;
    run_evaluation_loop(state, state.data.val, Stage::kSanityCheck, limits, progress);
  }
  state.hooks.call(hook::on_sanity_check_end, state.context);
  state.log.board = {};
  state.progress.evaluation_batches = 0;
  state.setup.stage = Stage::kFit;
  load_random_state(random, device);
}

}  // namespace lockstep::detail
