// What a run does before its loop: which callbacks there are and the order of their hooks, the data, the
// module and its first weights, and the optimizers of a fit.
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
#include <lockstep/torch.h>
#include <lockstep/train/callbacks/model_summary.h>
#include <lockstep/train/callbacks/progress_bar.h>
#include <lockstep/train/first_weights.h>
#include <lockstep/train/train_context.h>

#include "base/failure_place.h"
#include "checkpoint/load_weights.h"
#include "optim/schedule.h"
#include "parallel/deferred/deferred_tensor.h"
#include "strategy/deepspeed_optimizer.h"
#include "strategy/scaled_step.h"
#include "train/callbacks/deepspeed_reports.h"
#include "train/data/data_place.h"
#include "train/logging/class_name.h"
#include "train/logging/profiled_hook.h"
#include "train/loops/evaluation_loop.h"

namespace lockstep::detail {

void refuse_under_way(const RunSetup& setup, const std::string& call, const std::string& hint) {
  if (!setup.facts.is_under_way) return;
  throw ConfigError("train", {.what = call + " within a run of the same Trainer",
                              .expected = "the end of that run",
                              .got = "a call in one of its hooks",
                              .where = "",
                              .hint = hint});
}

void begin_run(RunSetup& setup, RunLog& log, Stage stage, std::shared_ptr<AnyModule> module) {
  refuse_under_way(setup, std::string(stage_name(stage)), "use another Trainer");
  if (!module)
    throw ConfigError("train", {.what = std::string(stage_name(stage)) + " was given no module",
                                .expected = "a module",
                                .got = "a null pointer"});
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
  const auto of_module = setup.module->configure_callbacks();
  for (const auto& own : of_module) {
    const auto replaced =
        std::erase_if(callbacks, [&](const auto& other) { return typeid(*other) == typeid(*own); });
    if (replaced > 0 && setup.is_global_zero())
      log_info("configure_callbacks() replaces " + class_name(*own) + " of the Trainer's callbacks");
  }
  callbacks.insert(callbacks.end(), of_module.begin(), of_module.end());
  const auto& options = setup.options;
  if (options.barebones) leave_out_reports(callbacks);
  const auto [has_bar, has_summary] = own_reports(callbacks, options);
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
  if (setup.stage == Stage::kFit) setup.model_checkpoint = first_model_checkpoint(setup.callbacks);
  hooks.clear(setup.profiler.get());
  for (const auto& callback : setup.callbacks) {
    const auto place = callback->place();
    const bool monitors = place == CallbackPlace::kMonitor || place == CallbackPlace::kCheckpoint;
    hooks.add(*callback, "Callback", monitors);
  }
  hooks.add(*setup.module, std::string(kModuleKind), false);
}

namespace {

// Defers the initialization of tensors where the strategy wants that.
std::optional<DeferredInit> deferral(const RunSetup& setup) {
  return setup.strategy->defers_init() ? std::optional<DeferredInit>(std::in_place) : std::nullopt;
}

// Tensors whose initialization is deferred are read when they are materialized.
IncompatibleKeys read_first_weights(const std::filesystem::path& path, const torch::nn::Module& module,
                                    const WeightNames& names, bool strict) {
  const torch::NoGradGuard no_grad;
  const auto put = [](const at::Tensor& tensor, const StoredTensor& stored) {
    const auto read = [read = stored.read, type = tensor.scalar_type()] { return read().to(type); };
    if (!replace_history(tensor, read)) tensor.copy_(read());
  };
  return load_weights(path, module, names, strict, put);
}

}  // namespace

namespace {

void read_init_weights(const std::filesystem::path& path, const AnyModule& module) {
  const auto text = [&](const std::exception& error) {
    return ErrorParts{.what = "init_weights cannot be used: " + std::string(error.what())};
  };
  try {
    warn_of(read_first_weights(path, module, {}, module.strict_loading()), path.string());
  } catch (const CheckpointError& error) {
    throw CheckpointError("train", text(error));
  } catch (const IoError& error) {
    throw IoError("train", text(error));
  }
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
  auto* const profiler = setup.profiler.get();
  if (setup.environment->local_rank() == 0) {
    const auto measured = profiled_hook(profiler, kModuleKind, *setup.module, "prepare_data");
    in_place("prepare_data", [&] { setup.module->prepare_data(); });
  }
  setup.strategy->barrier();
  hooks.call(hook::setup, context);
  {
    const auto scope = deferral(setup);
    const auto measured = profiled_hook(profiler, kModuleKind, *setup.module, "configure_model");
    in_place("configure_model", [&] { setup.module->configure_model(context); });
  }
  // Loaded once: a later test is about the weights that fit has trained. The strategy sends rank 0's weights
  // to all ranks.
  const auto weights = std::exchange(setup.options.run.init_weights, {});
  if (!weights.empty() && setup.is_global_zero()) read_init_weights(weights, *setup.module);
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

namespace {

// Flattens Optimizers::others, in the order of the optimizers' numbers.
std::vector<Optimizers> numbered(Optimizers first) {
  auto others = std::exchange(first.others, {});
  std::vector<Optimizers> all;
  if (first.optimizer || !others.empty()) all.push_back(std::move(first));
  for (auto& other : others) {
    for (auto& one : numbered(std::move(other))) all.push_back(std::move(one));
  }
  return all;
}

void refuse_option(const std::string& option, const std::string& got) {
  throw ConfigError("train", {.what = option + " with manual optimisation",
                              .expected = "that option not to be set: training_step does this itself",
                              .got = got,
                              .hint = "remove it, or use automatic optimisation"});
}

// The first of `keys` that DeepSpeed's file has, or `option` where it has none of them.
std::string asked_for_by(const RunSetup& setup, std::initializer_list<const char*> keys, const char* option) {
  for (const auto* const key : keys)
    if (setup.deepspeed && setup.deepspeed->is_given(key)) return setup.deepspeed->named(key);
  return option;
}

// Every step() does the clipping that DeepSpeed's file asks for, as DeepSpeed's engine does.
void check_manual(const RunSetup& setup) {
  const auto& options = setup.options;
  if (options.accumulate_grad_batches != 1)
    refuse_option(
        asked_for_by(setup, {"gradient_accumulation_steps", "train_batch_size"}, "accumulate_grad_batches"),
        options.accumulate_grad_batches.print());
  const bool is_in_file = setup.deepspeed && setup.deepspeed->is_given("gradient_clipping");
  if (options.gradient_clip_val && !is_in_file)
    refuse_option("gradient_clip_val", std::to_string(*options.gradient_clip_val));
}

void check_number(const RunSetup& setup, std::size_t number) {
  if (!setup.module->automatic_optimization()) return check_manual(setup);
  if (number == 1) return;
  const bool none = number == 0;
  throw ConfigError("train",
                    {.what = none ? "configure_optimizers gave no optimizer"
                                  : "configure_optimizers gave several optimizers for automatic optimisation",
                     .expected = "one: ls::AdamW{...}, ls::SGD{...} or a function that makes one",
                     .got = none ? "an empty Optimizers" : std::to_string(number),
                     .hint = none ? ""
                                  : "override automatic_optimization() to return false, and step them in "
                                    "training_step"});
}

void check_each(const std::vector<Optimizers>& all) {
  const auto named = std::ranges::count_if(all, [](const auto& one) { return one.module != nullptr; });
  if (named != 0 && named != std::ssize(all)) {
    throw ConfigError("train", {.what = "optimizers of which only some name the module that they train",
                                .expected = "a module for every one of them, or for none",
                                .got = std::to_string(named) + " of " + std::to_string(all.size())});
  }
  for (const auto& one : all) {
    if (!one.optimizer) {
      throw ConfigError("train", {.what = "configure_optimizers gave an empty optimizer among others",
                                  .expected = "ls::AdamW{...}, ls::SGD{...} or a function that makes one"});
    }
    if (one.lr_scheduler && one.lr_scheduler->monitor.empty() &&
        std::holds_alternative<ReduceLROnPlateau>(one.lr_scheduler->scheduler)) {
      throw ConfigError("train", {.what = "LRScheduler::monitor of ReduceLROnPlateau",
                                  .expected = "the name of a logged metric, such as \"val_loss\"",
                                  .got = "none"});
    }
    if (one.lr_scheduler && one.lr_scheduler->frequency < 1) {
      throw ConfigError("train", {.what = "LRScheduler::frequency",
                                  .expected = ">= 1",
                                  .got = std::to_string(one.lr_scheduler->frequency)});
    }
  }
}

void require_part(const RunSetup& setup, const torch::nn::Module& module) {
  const auto parts = setup.module->modules();
  if (std::ranges::any_of(parts, [&](const auto& part) { return part.get() == &module; })) return;
  throw ConfigError("train", {.what = "an optimizer's module is no part of the module that is trained",
                              .expected = "one that it has registered, or itself",
                              .got = module.name()});
}

void require_disjoint(const RunSetup& setup, const torch::nn::Module& module) {
  for (const auto& parameter : module.named_parameters()) {
    if (!setup.trained.has(parameter.value())) continue;
    throw ConfigError("train", {.what = "two optimizers' modules share a parameter",
                                .expected = "modules without a common parameter, or the same module",
                                .got = parameter.key() + " of " + module.name()});
  }
}

void set_up_module(RunSetup& setup, const std::shared_ptr<torch::nn::Module>& module) {
  if (setup.trained.find(*module)) return;
  require_part(setup, *module);
  require_disjoint(setup, *module);
  setup.strategy->setup_module(module);
  setup.trained.add(module);
}

void check_closure(const RunSetup& setup, const Optimizer& optimizer) {
  if (!optimizer.needs_closure() || setup.options.accumulate_grad_batches == 1) return;
  throw ConfigError("train", {.what = "accumulate_grad_batches with " + std::string(optimizer.name()),
                              .expected = "1: this optimizer evaluates the loss of its batch several times",
                              .got = setup.options.accumulate_grad_batches.print()});
}

void set_up_scheduler(const RunSetup& setup, RunOptimizer& made) {
  const auto& options = made.lr_scheduler->scheduler;
  made.scheduler = std::make_unique<Scheduler>(options, *made.optimizer);
  if (cycles_betas(options) && !made.optimizer->groups().front().betas && setup.is_global_zero())
    log_warning("OneCycle's cycle_momentum has no effect: optimizer " + std::string(made.optimizer->name()) +
                " has no betas");
}

// A callback may have changed accumulate_grad_batches since the options were checked.
Optimizers completed_by_deepspeed(const RunSetup& setup, const RunData& data, const FitProgress& progress,
                                  Optimizers own) {
  check_accumulation(setup.options.accumulate_grad_batches, *setup.deepspeed,
                     setup.environment->world_size());
  auto result = completed(std::move(own), *setup.deepspeed, std::get<DeepSpeed>(setup.options.strategy),
                          trained_batches(setup, data, progress));
  if (!setup.is_global_zero()) return result.optimizers;
  for (const auto& warning : result.warnings) log_warning(warning);
  if (!result.filled.empty()) log_info("deepspeed: " + result.filled);
  return result.optimizers;
}

}  // namespace

void heed_new_batch_size(RunSetup& setup, const RunData& data, const FitProgress& progress) {
  if (!setup.deepspeed) return;
  const auto batches = trained_batches(setup, data, progress);
  check_batch_size(*setup.deepspeed, batches);
  if (!has_section(*setup.deepspeed, "scheduler")) return;
  FilledConfig filled{.config = *setup.deepspeed};
  fill_scheduler(filled, std::get<DeepSpeed>(setup.options.strategy), batches.steps);
  const auto schedule = scheduler_of(filled.config);
  for (auto& one : setup.optimizers) {
    if (!one.lr_scheduler || !std::holds_alternative<DeepSpeedLR>(one.lr_scheduler->scheduler)) continue;
    one.lr_scheduler = schedule;
    set_up_scheduler(setup, one);
  }
  if (setup.is_global_zero() && !filled.fillings.empty())
    log_info("deepspeed: " + sentence_of(filled.fillings, filled.config));
}

TrainedBatches trained_batches(const RunSetup& setup, const RunData& data, const FitProgress& progress) {
  return {.batch_size = data.train->batch_size(),
          .accumulation = setup.options.accumulate_grad_batches.at(0),
          .world_size = setup.environment->world_size(),
          .steps = estimated_steps(setup, data, progress)};
}

void set_up_optimizers(RunSetup& setup, const RunData& data, const FitProgress& progress) {
  auto own = in_place("configure_optimizers", [&] {
    const auto measured =
        profiled_hook(setup.profiler.get(), kModuleKind, *setup.module, "configure_optimizers");
    return setup.module->configure_optimizers();
  });
  if (setup.deepspeed) own = completed_by_deepspeed(setup, data, progress, std::move(own));
  auto all = numbered(std::move(own));
  check_number(setup, all.size());
  check_each(all);
  setup.strategy->set_precision(*setup.precision);
  // Parameters that no optimizer trains must be the same on all ranks, too.
  if (!all.empty() && all.front().module) setup.strategy->setup_evaluation(*setup.module);
  if (all.empty()) set_up_module(setup, setup.module);
  for (auto& one : all) {
    RunOptimizer made{.module = one.module ? one.module : setup.module, .lr_scheduler = one.lr_scheduler};
    set_up_module(setup, made.module);
    made.optimizer = setup.strategy->setup_optimizer(*made.module, one.optimizer);
    begin_with(*setup.precision, *made.optimizer);
    check_closure(setup, *made.optimizer);
    if (made.lr_scheduler) set_up_scheduler(setup, made);
    setup.optimizers.push_back(std::move(made));
  }
}

}  // namespace lockstep::detail

namespace lockstep {

IncompatibleKeys load_first_weights(const TrainContext& context, const std::filesystem::path& path,
                                    const torch::nn::Module& module, const WeightNames& names, bool strict) {
  if (!context.is_global_zero()) return {};
  return detail::read_first_weights(path, module, names, strict);
}

}  // namespace lockstep
