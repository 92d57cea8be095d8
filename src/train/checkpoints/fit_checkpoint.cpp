#include "train/checkpoints/fit_checkpoint.h"

#include <algorithm>
#include <map>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/optim/scheduler.h>
#include <lockstep/profilers/profiler.h>
#include <lockstep/state/module_state.h>
#include <lockstep/torch.h>
#include <lockstep/train/callbacks/failure_checkpoints.h>
#include <lockstep/train/callbacks/model_checkpoint.h>

#include "checkpoint/staging_directory.h"
#include "strategy/module_parameters.h"
#include "strategy/same_optimizer.h"
#include "train/activity_scope.h"
#include "train/data/data_place.h"
#include "train/options/accumulation_changes.h"

namespace lockstep::detail {
namespace {

StateTree tree_of(const Metrics& metrics) {
  StateTree tree;
  for (const auto& [name, value] : metrics) tree.set(name, value);
  return tree;
}

StateTree validations_of(const MetricBoard& board) {
  StateList measured;
  for (const auto& [name, validation] : board.measured) {
    StateTree metric;
    metric.set("name", name);
    metric.set("number", validation.number);
    metric.set("epoch", validation.epoch);
    metric.set("global_step", validation.global_step);
    measured.push_back(std::move(metric));
  }
  StateTree tree;
  tree.set("ended", board.num_validations);
  tree.set("measured", std::move(measured));
  return tree;
}

// The gradients of an open window; empty where none is open.
StateTree gradients_of(const FitParts& fit) {
  StateTree tree;
  if (!has_gradients_to_keep(fit)) return tree;
  for (const auto& [name, parameter] : fit.setup.strategy->accumulating_parameters(*fit.setup.module)) {
    if (parameter.grad().defined()) tree.set(name, parameter.grad());
  }
  return tree;
}

// Buffers differ between ranks with broadcast_buffers = false.
StateTree buffers_of(const FitParts& fit) {
  StateTree tree;
  if (fit.setup.is_global_zero()) return tree;
  for (const auto& buffer : fit.setup.module->named_buffers()) tree.set(buffer.key(), buffer.value());
  return tree;
}

StateTree callbacks_of(const FitParts& fit) {
  StateTree tree;
  for_each_callback(fit, [&](const std::string& key, const Callback& callback) {
    auto own = callback.state();
    if (!own.empty()) tree.set(key, std::move(own));
  });
  return tree;
}

template <class Act>
void warn_of_failure(const FitParts& fit, Act act) {
  try {
    act();
  } catch (const IoError& error) {
    if (fit.setup.is_global_zero()) log_warning(std::string(error.what()) + "; training goes on");
  }
}

StateTree own_state(const FitParts& fit) {
  StateTree own;
  own.set("random", random_state(fit.setup.strategy->root_device()));
  own.set("strategy", fit.setup.strategy->state());
  own.set("gradients", gradients_of(fit));
  own.set("buffers", buffers_of(fit));
  own.set("train_log", fit.log.train.state());
  own.set("evaluation_log", fit.log.evaluation.state());
  own.set("callback_metrics", tree_of(fit.log.board.callback.read()));
  own.set("progress_bar_metrics", tree_of(fit.log.board.progress_bar.read()));
  own.set("validations", validations_of(fit.log.board));
  own.set("callbacks", callbacks_of(fit));
  own.set("module", fit.setup.module->state());
  if (fit.data.module) own.set("data_module", fit.data.module->state());
  own.set("should_stop", fit.stop.saved);
  own.set("stop_agreed", fit.stop.agreed && !fit.stop.this_run_only && fit.stop.callbacks.empty());
  return own;
}

}  // namespace

StateTree loops_state(const FitParts& fit) {
  auto loops = state_of(fit.progress);
  keep_accumulation(fit.setup, loops);
  return loops;
}

namespace {

ResumePoint resume_point_of(const FitParts& fit) {
  for (auto* log : {&fit.log.train, &fit.log.evaluation}) log->keep_metric_values(fit.setup.communicator());
  return {.loops = loops_state(fit), .own = own_state(fit), .world_size = fit.setup.communicator().size()};
}

void add_run(const FitParts& fit, ResumePoint resume_point, CheckpointState& all) {
  for (std::size_t i = 0; i < fit.setup.optimizers.size(); ++i) {
    const auto& [module, optimizer, config, scheduler] = fit.setup.optimizers[i];
    all.shared.set(numbered("optimizer", i), fit.setup.strategy->optimizer_state(*optimizer));
    if (!scheduler) continue;
    auto schedule = state_of(*scheduler);
    schedule.set("kind", schedule_name(*config));
    all.shared.set(numbered("lr_scheduler", i), std::move(schedule));
  }
  if (auto own = fit.setup.precision->state(); !own.empty())
    all.shared.set(fit.setup.precision->state_key(), std::move(own));
  all.shared.set("loops", std::move(resume_point.loops));
  all.shared.set("data", data_place_of(fit.setup, fit.data, fit.progress));
  const auto& figures = fit.log.figures;
  if (figures.seconds_before) all.shared.set(kRunSeconds, *figures.seconds_before + figures.leg_seconds());
  all.own = std::move(resume_point.own);
}

StateTree weights_with(const FitParts& fit, StateTree model) {
  StateTree weights;
  weights.set("model", std::move(model));
  weights.set("hyper_parameters", fit.setup.options.run.config_yaml);
  return weights;
}

// What a ModelCheckpoint has saved is on disk, also where its loops go back; when it saves next is theirs.
bool is_of_loops(const std::string& name) {
  return name == "last_global_step_saved" || name == "last_due" || name == "waits_for_validation";
}

// `callbacks` with the files that each ModelCheckpoint knows by now.
StateTree with_saved_files(const FitParts& fit, StateTree callbacks) {
  for_each_callback(fit, [&](const std::string& key, const Callback& callback) {
    if (dynamic_cast<const ModelCheckpoint*>(&callback) == nullptr || !callbacks.contains(key)) return;
    auto own = callbacks.get<StateTree>(key);
    const auto now = callback.state();
    for (const auto& entry : now.entries())
      if (!is_of_loops(entry.name)) own.set(entry.name, entry.value);
    callbacks.set(key, std::move(own));
  });
  return callbacks;
}

ResumePoint kept_resume_point(const FitParts& fit) {
  auto kept = *fit.checkpoints.resume_point;
  kept.own.set("callbacks", with_saved_files(fit, kept.own.get<StateTree>("callbacks")));
  return kept;
}

// A fit as a checkpoint holds it.
struct Captured {
  CheckpointState state;
  CheckpointInfo info;
};

Captured captured(const FitParts& fit, StateTree weights, bool weights_only) {
  auto resume_point = fit.checkpoints.resume_point ? kept_resume_point(fit) : resume_point_of(fit);
  Captured all{.state = {.shared = std::move(weights)},
               .info = {.epoch = resume_point.loops.get<std::int64_t>("epoch"),
                        .global_step = fit.progress.global_step,
                        .strategy = std::string(fit.setup.strategy->name()),
                        .mesh = fit.setup.strategy->mesh()}};
  if (!weights_only) add_run(fit, std::move(resume_point), all.state);
  for (const auto& callback : fit.setup.callbacks)
    callback->on_save_checkpoint(fit.context, all.state.shared);
  return all;
}

void check_has_place(const FitParts& fit, bool in_hook) {
  const bool between_batches =
      fit.checkpoints.resume_point || (in_hook && fit.progress.phase != FitPhase::kInBatch);
  if (fit.setup.stage == Stage::kFit && !fit.setup.trained.empty() && between_batches) return;
  const bool is_of_fit = fit.setup.stage == Stage::kFit;
  if (!fit.setup.facts.is_under_way) {
    throw ConfigError("train", {.what = "save_checkpoint() saves a run as fit left it",
                                .expected = "a call right after fit",
                                .got = is_of_fit ? "one before fit, or after a fit that had nothing to train"
                                                 : "one after " + std::string(stage_name(fit.setup.stage))});
  }
  throw ConfigError("train",
                    {.what = "a checkpoint cannot be taken here",
                     .expected = "a hook of fit between batches, such as on_train_batch_end, or of its "
                                 "validation",
                     .got = is_of_fit ? "a step, or a hook inside a batch"
                                      : "stage " + std::string(stage_name(fit.setup.stage))});
}

bool is_resumed_from(const FitParts& fit, const std::filesystem::path& folder) {
  std::error_code failure;
  return !fit.checkpoints.resumed_from.empty() &&
         std::filesystem::equivalent(folder, fit.checkpoints.resumed_from, failure);
}

// Rank 0 finishes a checkpoint that is complete: sets the link and removes the one that it replaces.
void finish_save(const FitParts& fit, const SaveRequest& request, const std::filesystem::path& folder) {
  if (!fit.setup.is_global_zero()) return;
  if (!request.link.empty()) link_checkpoint(request.link, folder);
  if (request.replaced.empty() || is_resumed_from(fit, request.replaced)) return;
  fit.setup.checkpoint_io->remove(request.replaced);
  std::error_code not_empty;
  if (request.replaced.parent_path() != folder.parent_path())  // that of a "{val/loss}"
    std::filesystem::remove(request.replaced.parent_path(), not_empty);
}

// Writing is collective: where it fails on one rank, it fails on all.
template <class Write>
void write_or_tell(const SaveRequest& request, Write write) {
  try {
    write();
  } catch (const IoError&) {
    if (request.on_failure) request.on_failure();
    throw;
  }
}

void wait_for_writer(const FitParts& fit) {
  const auto on_saved = std::exchange(fit.checkpoints.on_saved, nullptr);
  const auto request = std::exchange(fit.checkpoints.request_of_writer, {});
  write_or_tell(request, [&] { fit.checkpoints.writer->wait(); });
  if (on_saved) on_saved();
}

}  // namespace

StateTree weights_of(const FitParts& fit) {
  return weights_with(fit, fit.setup.strategy->saved_state(*fit.setup.module));
}

void keep_resume_point(const FitParts& fit) {
  auto kept = resume_point_of(fit);
  kept.own = kept.own.clone();  // hooks that follow may change buffers
  kept.own.set("should_stop", false);
  kept.own.set("stop_agreed", false);
  fit.checkpoints.resume_point = std::move(kept);
}

bool has_saved_since_resume_point(const FitParts& fit) {
  const auto& former = fit.checkpoints.resume_point.value().own.get<StateTree>("callbacks");
  return !differences(former, with_saved_files(fit, former)).empty();
}

void save_fit(const FitParts& fit, const std::filesystem::path& folder, const SaveRequest& request,
              WriteMode mode) {
  static const Action kSave("save_checkpoint", ActionCategory::kCheckpoint);
  const ProfileScope measured(fit.setup.profiler.get(), kSave);
  const ActivityScope saving(RankActivity::kCheckpoint);
  if (fit.checkpoints.failure == nullptr) {
    fit.setup.strategy->check_replicas(*fit.setup.module);
    for (const auto& trained : fit.setup.optimizers)
      warn_of_other_settings(*trained.optimizer, fit.setup.communicator());
  }
  const auto [all, info] = captured(fit, weights_of(fit), request.weights_only);
  if (mode == WriteMode::kInForeground || !fit.setup.options.async_checkpoint) {
    write_or_tell(request,
                  [&] { fit.setup.checkpoint_io->save(folder, all, info, fit.setup.communicator()); });
    return finish_save(fit, request, folder);
  }
  auto& writer = fit.checkpoints.writer;
  if (!writer) writer = std::make_unique<CheckpointWriter>(fit.setup.communicator());
  warn_of_failure(fit, [&] { wait_for_writer(fit); });
  writer->save(folder, all, info);
  fit.checkpoints.request_of_writer = request;
  fit.checkpoints.on_saved = [&fit, request, folder] { finish_save(fit, request, folder); };
}

void save_after_hook(const FitParts& fit, const std::filesystem::path& folder, const SaveRequest& request) {
  if (fit.setup.stage == Stage::kSanityCheck || fit.checkpoints.are_off) return;
  check_has_place(fit, fit.hooks.is_calling());
  fit.checkpoints.promised.push_back(folder);
  fit.hooks.defer([&fit, folder, request] {
    std::erase(fit.checkpoints.promised, folder);
    warn_of_failure(fit, [&] { save_fit(fit, folder, request); });
  });
}

void capture_after_hook(const FitParts& fit, CheckpointCapture capture) {
  if (fit.setup.stage == Stage::kSanityCheck || fit.checkpoints.are_off) return;
  check_has_place(fit, fit.hooks.is_calling());
  fit.hooks.defer([&fit, capture = std::move(capture)] {
    const auto weights = weights_with(fit, fit.setup.strategy->saved_shards(*fit.setup.module));
    const auto all = captured(fit, weights, /*weights_only=*/false);
    warn_of_failure(fit, [&] { capture(all.state, all.info); });
  });
}

void save_after_fit(const FitParts& fit, const std::filesystem::path& folder, const SaveRequest& request) {
  check_has_place(fit, false);
  save_fit(fit, folder, request);
  await_save(fit);
}

void notice_failed_save(const FitParts& fit) {
  const auto& writer = fit.checkpoints.writer;
  if (writer && writer->is_idle()) warn_of_failure(fit, [&] { wait_for_writer(fit); });
}

void await_save(const FitParts& fit) {
  if (fit.checkpoints.writer) wait_for_writer(fit);
  fit.checkpoints.writer = nullptr;
}

namespace {

LocalCheckpoint* local_checkpoint(const RunSetup& setup) {
  for (const auto& callback : setup.callbacks) {
    if (auto* found = dynamic_cast<LocalCheckpoint*>(callback.get())) return found;
  }
  return nullptr;
}

// Some files are written by rank 0 alone, which alone knows whether that has failed.
bool is_saved_everywhere(const RunSetup& setup, const CheckpointSession& checkpoints) {
  const auto words = setup.communicator().all_gather_bytes(checkpoints.save_failure ? "failed" : "");
  return std::ranges::all_of(words, [](const auto& word) { return word.empty(); });
}

}  // namespace

LocalCheckpoints* local_checkpoints(const RunSetup& setup) {
  const auto* callback = local_checkpoint(setup);
  return callback == nullptr ? nullptr : callback->checkpoints();
}

void release_local_checkpoints(const RunSetup& setup) {
  if (auto* callback = local_checkpoint(setup)) callback->release();
}

void forget_local_checkpoints(const RunSetup& setup) {
  if (auto* checkpoints = local_checkpoints(setup)) checkpoints->forget_others();
}

void end_local_checkpoints(const RunSetup& setup, const CheckpointSession& checkpoints) {
  auto* local = local_checkpoints(setup);
  if (local == nullptr) return;
  try {
    local->close();
  } catch (const IoError& error) {
    if (setup.is_global_zero()) log_warning(error.what());
  }
  if (is_saved_everywhere(setup, checkpoints)) local->remove();
}

}  // namespace lockstep::detail
