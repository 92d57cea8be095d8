#include "train/end_run.h"

#include <functional>

#include <lockstep/base/log.h>
#include <lockstep/base/option_type.h>
#include <lockstep/base/process.h>
#include <lockstep/launch/errors.h>
#include <lockstep/launch/join.h>
#include <lockstep/precision/grad_scaler.h>

#include "train/fit_checkpoint.h"
#include "train/local_copies.h"
#include "train/open_data.h"
#include "train/summary.h"

namespace lockstep::detail {
namespace {

// Each run reports its own metrics; summary.json all of them.
void keep_metrics(RunState& state) {
  for (const auto& [name, value] : state.board.callback) state.all_metrics.insert_or_assign(name, value);
}

void end_profiling(const RunState& state) {
  if (!state.profiler) return;
  state.profiler->describe();
  state.profiler->teardown();
}

void warn_of_second(const char* what, const std::exception& error) {
  log_warning(std::string("after a failure, ") + what + " failed too: " + error.what());
}

// One step of what follows a failure: its own failure must not hide the first.
void attempt(const char* what, const std::function<void()>& step) {
  try {
    step();
  } catch (const std::exception& error) {
    warn_of_second(what, error);
  }
}

// In Lightning's order; each is told once, whatever the others do.
void tell_of_failure(RunState& state, const std::exception& error) {
  TrainContext context(state);
  state.failure = &error;
  state.hooks.call_each(
      hook::on_exception, [](const std::exception& second) { warn_of_second("on_exception", second); },
      context, error);
  attempt("on_exception", [&] {
    if (state.data_module) state.data_module->on_exception(error);
  });
  state.failure = nullptr;
}

// What metrics alone do not show.
void warn_of_missing_steps(const RunState& state) {
  if (state.stage != Stage::kFit || !state.is_global_zero()) return;
  const auto* const scaler = state.precision->grad_scaler();
  const auto skipped = scaler == nullptr ? 0 : scaler->skipped_steps();
  const auto steps = std::to_string(state.figures.steps);
  if (skipped > 0 && 2 * skipped >= state.figures.steps) {
    log_warning(std::to_string(skipped) + " of " + steps +
                " optimizer steps were left out: gradients were infinite or NaN");
  } else if (skipped > 0) {
    const auto scale = scaler->get_scale();
    log_info(
        std::to_string(skipped) + " of " + steps +
        " optimizer steps were left out: gradients were infinite or NaN" +
        (scale == 1 ? "" : " under the loss scale, which is " + OptionType<double>::print(scale) + " now"));
  }
  const bool was_open = state.figures.samples > 0 && state.figures.steps == 0;
  if (!was_open || !state.module->automatic_optimization()) return;
  const auto& window = state.progress.window;
  log_warning("no optimizer step was taken: the run ended within its first window of " +
              std::to_string(window.done > 0 ? window.length : state.window_length()) +
              " batches (accumulate_grad_batches)");
}

}  // namespace

// The summary comes last, when all ranks are through: until then any of them may still fail.
void end_run(RunState& state) {
  TrainContext context(state);
  keep_metrics(state);
  warn_of_missing_steps(state);
  state.strategy->teardown();
  if (state.stage == Stage::kFit) state.hooks.call(hook::on_fit_end, context);
  close_data(state);
  state.hooks.call(hook::teardown, context);
  for (const auto& logger : state.loggers) logger->finalize("success");
  end_profiling(state);
  write_summary(state, state.save_failure ? "failed" : "success", peak_rss_of_all(state));
}

void end_search(RunState& state) {
  TrainContext context(state);
  state.optimizers.clear();
  state.trained.clear();
  state.strategy->teardown();
  close_data(state);
  state.hooks.call(hook::teardown, context);
  if (state.profiler) state.profiler->teardown();
  write_summary(state, "success", peak_rss_of_all(state));
}

void end_failed_run(RunState& state, const std::exception& error) {
  note_failure(error);
  tell_of_failure(state, error);
  state.train_log.reset();
  state.evaluation_log.reset();
  attempt("closing the loggers", [&] {
    for (const auto& logger : state.loggers) logger->finalize("failed");
  });
  keep_metrics(state);
  const bool was_asked_to = dynamic_cast<const Terminated*>(&error) != nullptr;
  attempt("writing summary.json",
          [&] { write_summary(state, was_asked_to ? "terminated" : "failed", {peak_rss_bytes()}); });
  attempt("writing a checkpoint", [&] { await_save(state); });
  attempt("writing a local checkpoint", [&] { release_local_checkpoints(state); });
  attempt("teardown", [&] { state.strategy->teardown(); });
  state.strategy = nullptr;
}

}  // namespace lockstep::detail
