// The end of a run, good or failed: hooks, loggers, profiler, summary.json.
#include "train/run_lifecycle.h"

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/base/option_type.h>
#include <lockstep/base/version.h>
#include <lockstep/launch/errors.h>
#include <lockstep/launch/join.h>
#include <lockstep/precision/grad_scaler.h>
#include <lockstep/profilers/profilers.h>
#include <lockstep/torch.h>

#include "base/failure_place.h"
#include "device/xla_library_interface.h"
#include "train/checkpoints/fit_checkpoint.h"
#include "train/data/data_place.h"
#include "train/data/run_data.h"
#include "train/options/earlier_record.h"
#include "train/options/run_record.h"

namespace lockstep::detail {
namespace {

// summary.json reports the metrics of all runs of this Trainer, callback_metrics() those of the last one.
void keep_metrics(RunLog& log) {
  for (const auto& [name, value] : log.board.callback.read()) log.all_metrics.insert_or_assign(name, value);
}

void end_profiling(const RunSetup& setup) {
  if (!setup.profiler) return;
  setup.profiler->describe();
  setup.profiler->teardown();
}

// STAGE-NAME-0.json is the file of rank 0; all ranks are on its machine, whose clock is theirs.
void merge_time_lines(const TraceProfiler& profiler, int ranks) {
  constexpr std::string_view kOfRank0 = "-0.json";
  const auto file = profiler.last_file();
  auto name = file.filename().string();
  if (!name.ends_with(kOfRank0)) return;
  name.resize(name.size() - kOfRank0.size());
  std::vector<RankTrace> traces;
  for (int rank = 0; rank < ranks; ++rank) {
    traces.push_back(
        {.file = file.parent_path() / (name + "-" + std::to_string(rank) + ".json"), .rank = rank});
    if (!std::filesystem::exists(traces.back().file)) return;  // of a rank with another profiler
  }
  merge_traces(traces, file.parent_path() / (name + ".json"));
}

// On rank 0 once all ranks have written theirs: one time line of all.
void merge_time_lines(const RunSetup& setup) {
  const auto* const profiler = dynamic_cast<const TraceProfiler*>(setup.profiler.get());
  const int ranks = setup.environment->world_size();
  if (profiler == nullptr || ranks == 1 || setup.shape.num_nodes > 1 || !setup.is_global_zero()) return;
  try {
    merge_time_lines(*profiler, ranks);
  } catch (const std::exception& error) {
    log_warning(std::string("the time lines of the ranks are not merged: ") + error.what());
  }
}

void warn_of_second(const char* what, const std::exception& error) {
  log_warning(std::string("after a failure, ") + what + " failed too: " + error.what());
}

// Runs one step of the cleanup after a failure. Its own failure must not hide the first one.
void attempt(const char* what, const std::function<void()>& step) {
  try {
    step();
  } catch (const std::exception& error) {
    warn_of_second(what, error);
  }
}

// Calls on_exception in Lightning's order, once on each, whatever the others throw.
void tell_of_failure(const FitParts& fit, const std::exception& error) {
  fit.checkpoints.failure = &error;
  fit.hooks.call_each(
      hook::on_exception, [](const std::exception& second) { warn_of_second("on_exception", second); },
      fit.context, error);
  attempt("on_exception", [&] {
    if (fit.data.module) fit.data.module->on_exception(error);
  });
  fit.checkpoints.failure = nullptr;
}

// Warns of optimizer steps that were skipped, which metrics alone do not show.
void warn_of_missing_steps(const FitParts& fit) {
  if (fit.setup.stage != Stage::kFit || !fit.setup.is_global_zero()) return;
  const auto* const scaler = fit.setup.precision->grad_scaler();
  const auto skipped = scaler == nullptr ? 0 : scaler->skipped_steps();
  const auto steps = std::to_string(fit.log.figures.steps);
  if (skipped > 0 && 2 * skipped >= fit.log.figures.steps) {
    log_warning(std::to_string(skipped) + " of " + steps +
                " optimizer steps were left out: gradients were infinite or NaN");
  } else if (skipped > 0) {
    const auto scale = scaler->get_scale();
    log_info(
        std::to_string(skipped) + " of " + steps +
        " optimizer steps were left out: gradients were infinite or NaN" +
        (scale == 1 ? "" : " under the loss scale, which is " + OptionType<double>::print(scale) + " now"));
  }
  const bool was_open = fit.log.figures.samples > 0 && fit.log.figures.steps == 0;
  if (!was_open || !fit.setup.module->automatic_optimization()) return;
  const auto& window = fit.progress.window;
  log_warning("no optimizer step was taken: the run ended within its first window of " +
              std::to_string(window.done > 0 ? window.length : window_length(fit.setup, fit.progress)) +
              " batches (accumulate_grad_batches)");
}

double ratio(double value, double by) { return by > 0 ? value / by : 0; }

// The most memory that each rank has had so far. Collective, so that all ranks have come this far.
std::vector<std::int64_t> peak_rss_of_all(const Communicator& communicator) {
  std::vector<std::int64_t> bytes;
  for (const auto& text : communicator.all_gather_bytes(std::to_string(peak_rss_bytes())))
    bytes.push_back(std::stoll(text));
  return bytes;
}

// RUN_DIR/summary.json: what a run was and what came out of it, for scripts. Counters and times are of the
// whole run, with the legs before the one that ends; seconds are null where the checkpoint that it went on
// from does not tell them. `status` is "success", "failed" or "terminated"; `peak_rss`: of the ranks that are
// known about, in bytes.
void write_summary(const FitParts& fit, const SearchRun& search, const std::string& status,
                   const std::vector<std::int64_t>& peak_rss) {
  const auto& setup = fit.setup;
  if (setup.run_dir.empty() || !setup.is_global_zero()) return;
  const auto& progress = fit.progress;
  const auto& figures = fit.log.figures;
  const nlohmann::ordered_json leg{
      {"steps", figures.steps},
      {"samples", figures.samples},
      {"seconds", figures.seconds},
      {"samples_per_second", ratio(static_cast<double>(figures.samples), figures.seconds)}};
  nlohmann::ordered_json summary{{"status", status},
                                 {"strategy", setup.strategy->name()},
                                 {"precision", setup.precision->name()},
                                 {"world_size", setup.environment->world_size()},
                                 {"epochs", progress.epoch},
                                 {"steps", progress.global_step},
                                 {"samples", progress.samples},
                                 {"seconds", nullptr},
                                 {"samples_per_second", nullptr},
                                 {"this_leg", leg},
                                 {"start_to_first_collective_s", figures.start_to_first_collective_s},
                                 {"comm_backend", setup.communicator().backend()},
                                 {"bytes_sent_per_step", ratio(static_cast<double>(figures.bytes_sent),
                                                               static_cast<double>(figures.steps))},
                                 {"peak_rss_bytes_per_rank", peak_rss},
                                 {"metrics", fit.log.all_metrics},
                                 {"versions", {{"lockstep", kVersion}, {"libtorch", TORCH_VERSION}}}};
  if (figures.seconds_before) {
    const double seconds = *figures.seconds_before + figures.seconds;
    summary["seconds"] = seconds;
    summary["samples_per_second"] = ratio(static_cast<double>(progress.samples), seconds);
  }
  if (const auto xla = xla_figures(); !xla.empty()) summary["xla"] = xla;
  for (const auto& [name, found] : search.found)
    std::visit([&](const auto& value) { summary["tuned"][name] = value; }, found);
  write_file_atomically(setup.run_dir / "summary.json",
                        summary.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

// " of step 2 (epoch 0, batch 2)", for errors; empty before the first batch. Where on_train_batch_end is
// called, its batch is counted already.
std::string place_in_fit(const FitProgress& progress) {
  const auto step = " of step " + std::to_string(progress.global_step);
  const auto epoch = "epoch " + std::to_string(progress.epoch);
  switch (progress.phase) {
    case FitPhase::kEpochStart:
      return progress.global_step == 0 ? "" : step;
    case FitPhase::kBatches:
    case FitPhase::kInBatch:
      return step + " (" + epoch + ", batch " + std::to_string(progress.batches) + ")";
    case FitPhase::kBatchEnd:
    case FitPhase::kValidation:
      return step + " (" + epoch + ", batch " + std::to_string(progress.batches - 1) + ")";
    case FitPhase::kEpochEnd:
    case FitPhase::kEpochLogged:
      break;
  }
  return step + " (" + epoch + ")";
}

}  // namespace

namespace {

// On a full disk each file fails: the error that ends the run is that of the first.
void write_after_others(const FitParts& fit, const char* what, const std::function<void()>& write) {
  if (fit.checkpoints.save_failure) {
    attempt(what, write);
  } else {
    write();
  }
}

}  // namespace

// The summary is written last: until then any rank may still fail.
void end_run(const FitParts& fit, const SearchRun& search) {
  keep_metrics(fit.log);
  warn_of_missing_steps(fit);
  fit.setup.strategy->teardown();
  if (fit.setup.stage == Stage::kFit) fit.hooks.call(hook::on_fit_end, fit.context);
  close_data(fit.setup, fit.data);
  fit.hooks.call(hook::teardown, fit.context);
  write_after_others(fit, "closing the loggers", [&] {
    for (const auto& logger : fit.log.loggers) logger->finalize("success");
  });
  end_profiling(fit.setup);
  const auto peak_rss = peak_rss_of_all(fit.setup.communicator());
  merge_time_lines(fit.setup);
  write_after_others(fit, "writing summary.json", [&] {
    write_summary(fit, search, fit.checkpoints.save_failure ? "failed" : "success", peak_rss);
  });
}

void end_search(const FitParts& fit, const SearchRun& search) {
  fit.setup.optimizers.clear();
  fit.setup.trained.clear();
  fit.setup.strategy->teardown();
  close_data(fit.setup, fit.data);
  fit.hooks.call(hook::teardown, fit.context);
  if (fit.setup.profiler) fit.setup.profiler->teardown();
  write_summary(fit, search, "success", peak_rss_of_all(fit.setup.communicator()));
}

namespace {

// A run that is refused before it begins leaves the record of an earlier run in its folder as it is.
bool is_refused(const RunSetup& setup, const std::exception& error) {
  const bool is_refusal = dynamic_cast<const ConfigError*>(&error) != nullptr ||
                          dynamic_cast<const CheckpointError*>(&error) != nullptr ||
                          dynamic_cast<const IoError*>(&error) != nullptr;
  return is_refusal && !setup.facts.is_recorded && !setup.run_dir.empty() && holds_record(setup.run_dir);
}

}  // namespace

void end_failed_run(const FitParts& fit, const SearchRun& search, const std::exception& error) {
  if (fit.setup.stage == Stage::kFit) note_failure_detail(place_in_fit(fit.progress));
  note_failure(error);
  tell_of_failure(fit, error);
  fit.log.train.reset();
  fit.log.evaluation.reset();
  attempt("closing the loggers", [&] {
    for (const auto& logger : fit.log.loggers) logger->finalize("failed");
  });
  keep_metrics(fit.log);
  const bool was_asked_to = dynamic_cast<const Terminated*>(&error) != nullptr;
  attempt("writing summary.json", [&] {
    if (is_refused(fit.setup, error)) return;
    write_record(fit.setup);
    write_summary(fit, search, was_asked_to ? "terminated" : "failed", {peak_rss_bytes()});
  });
  attempt("writing a checkpoint", [&] { await_save(fit); });
  attempt("writing a local checkpoint", [&] { release_local_checkpoints(fit.setup); });
  attempt("teardown", [&] { fit.setup.strategy->teardown(); });
  fit.setup.strategy = nullptr;
}

}  // namespace lockstep::detail
