#include "train/fit_checkpoint.h"

#include <map>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/optim/optim_state.h>
#include <lockstep/state/module_state.h>
#include <lockstep/state/random_state.h>
#include <lockstep/torch.h>

#include "checkpoint/staging_directory.h"
#include "strategy/named_parameters.h"
#include "train/data_place.h"
#include "train/fit_state.h"

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

// Of a window that is not complete; else empty.
StateTree gradients_of(const RunState& state) {
  StateTree tree;
  if (!has_gradients_to_keep(state)) return tree;
  for (const auto& [name, parameter] : state.strategy->accumulating_parameters(*state.module)) {
    if (parameter.grad().defined()) tree.set(name, parameter.grad());
  }
  return tree;
}

// Where ranks keep their own buffers (broadcast_buffers = false) they differ.
StateTree buffers_of(const RunState& state) {
  StateTree tree;
  if (state.is_global_zero()) return tree;
  for (const auto& buffer : state.module->named_buffers()) tree.set(buffer.key(), buffer.value());
  return tree;
}

StateTree callbacks_of(const RunState& state) {
  StateTree tree;
  for_each_callback(state, [&](const std::string& key, const Callback& callback) {
    auto own = callback.state();
    if (!own.empty()) tree.set(key, std::move(own));
  });
  return tree;
}

template <class Act>
void warn_of_failure(const RunState& state, Act act) {
  try {
    act();
  } catch (const IoError& error) {
    if (state.is_global_zero()) log_warning(std::string(error.what()) + "; training goes on");
  }
}

StateTree own_state(const RunState& state) {
  StateTree own;
  own.set("random", random_state());
  own.set("strategy", state.strategy->state());
  own.set("gradients", gradients_of(state));
  own.set("buffers", buffers_of(state));
  own.set("train_log", state.train_log.state());
  own.set("evaluation_log", state.evaluation_log.state());
  own.set("callback_metrics", tree_of(state.board.callback));
  own.set("progress_bar_metrics", tree_of(state.board.progress_bar));
  own.set("validations", validations_of(state.board));
  own.set("callbacks", callbacks_of(state));
  own.set("module", state.module->state());
  if (state.data_module) own.set("data_module", state.data_module->state());
  own.set("should_stop", state.keeps_stop);
  own.set("stop_agreed", state.stop_agreed && !state.stops_this_run && state.stop_wishes.empty());
  return own;
}

FitMoment moment_of(RunState& state) {
  for (auto* log : {&state.train_log, &state.evaluation_log}) log->keep_metric_values(state.communicator());
  return {
      .loops = state_of(state.progress), .own = own_state(state), .world_size = state.communicator().size()};
}

void add_run(const RunState& state, FitMoment moment, CheckpointState& all) {
  for (std::size_t i = 0; i < state.optimizers.size(); ++i) {
    const auto& [module, optimizer, config, scheduler] = state.optimizers[i];
    all.shared.set(numbered("optimizer", i), state.strategy->optimizer_state(*optimizer));
    if (!scheduler) continue;
    auto schedule = state_of(*scheduler);
    schedule.set("kind", schedule_name(*config));
    all.shared.set(numbered("lr_scheduler", i), std::move(schedule));
  }
  if (auto own = state.precision->state(); !own.empty())
    all.shared.set(state.precision->state_key(), std::move(own));
  all.shared.set("loops", std::move(moment.loops));
  all.shared.set("data", data_place_of(state));
  all.own = std::move(moment.own);
}

StateTree weights_with(const RunState& state, StateTree model) {
  StateTree weights;
  weights.set("model", std::move(model));
  weights.set("hyper_parameters", state.options.run.config_yaml);
  return weights;
}

// A moment of fit as checkpoints hold it.
struct Captured {
  CheckpointState state;
  CheckpointInfo info;
};

Captured captured(RunState& state, StateTree weights, bool weights_only) {
  auto moment = state.moment ? *state.moment : moment_of(state);
  Captured all{.state = {.shared = std::move(weights)},
               .info = {.epoch = moment.loops.get<std::int64_t>("epoch"),
                        .global_step = state.progress.global_step,
                        .strategy = std::string(state.strategy->name()),
                        .mesh = state.strategy->mesh()}};
  if (!weights_only) add_run(state, std::move(moment), all.state);
  TrainContext context(state);
  for (const auto& callback : state.callbacks) callback->on_save_checkpoint(context, all.state.shared);
  return all;
}

void check_has_place(const RunState& state, bool in_hook) {
  const bool between_batches = state.moment || (in_hook && state.progress.phase != FitPhase::kInBatch);
  if (state.stage == Stage::kFit && !state.trained.empty() && between_batches) return;
  const bool is_of_fit = state.stage == Stage::kFit;
  if (!in_hook) {
    throw ConfigError("train", {.what = "save_checkpoint() saves a run as fit left it",
                                .expected = "a call right after fit",
                                .got = is_of_fit ? "one before fit, or after a fit that had nothing to train"
                                                 : "one after " + std::string(stage_name(state.stage))});
  }
  throw ConfigError(
      "train",
      {.what = "a checkpoint cannot be taken here",
       .expected = "a hook of fit between batches, such as on_train_batch_end, or of its "
                   "validation",
       .got = is_of_fit ? "a hook inside a batch" : "stage " + std::string(stage_name(state.stage))});
}

bool is_resumed_from(const RunState& state, const std::filesystem::path& folder) {
  std::error_code failure;
  return !state.resumed_from.empty() && std::filesystem::equivalent(folder, state.resumed_from, failure);
}

// What is to be done when the checkpoint is complete; rank 0 does it for all.
void finish_save(const RunState& state, const SaveRequest& request, const std::filesystem::path& folder) {
  if (!state.is_global_zero()) return;
  if (!request.link.empty()) link_checkpoint(request.link, folder);
  if (request.replaced.empty() || is_resumed_from(state, request.replaced)) return;
  state.checkpoint_io->remove(request.replaced);
  std::error_code not_empty;
  if (request.replaced.parent_path() != folder.parent_path())  // that of a "{val/loss}"
    std::filesystem::remove(request.replaced.parent_path(), not_empty);
}

// A rank that fails here knows that all do.
template <class Write>
void write_or_tell(const SaveRequest& request, Write write) {
  try {
    write();
  } catch (const IoError&) {
    if (request.on_failure) request.on_failure();
    throw;
  }
}

void wait_for_writer(RunState& state) {
  const auto on_saved = std::exchange(state.on_saved, nullptr);
  const auto request = std::exchange(state.request_of_writer, {});
  write_or_tell(request, [&] { state.checkpoint_writer->wait(); });
  if (on_saved) on_saved();
}

}  // namespace

StateTree weights_of(const RunState& state) {
  return weights_with(state, state.strategy->saved_state(*state.module));
}

void keep_moment(RunState& state) {
  state.moment = moment_of(state);
  state.moment->own = state.moment->own.clone();  // hooks that follow may change buffers
  state.moment->own.set("should_stop", false);
  state.moment->own.set("stop_agreed", false);
}

void save_fit(RunState& state, const std::filesystem::path& folder, const SaveRequest& request) {
  if (state.failure == nullptr) state.strategy->check_replicas(*state.module);
  const auto [all, info] = captured(state, weights_of(state), request.weights_only);
  if (!state.options.async_checkpoint) {
    write_or_tell(request, [&] { state.checkpoint_io->save(folder, all, info, state.communicator()); });
    return finish_save(state, request, folder);
  }
  auto& writer = state.checkpoint_writer;
  if (!writer) writer = std::make_unique<CheckpointWriter>(state.communicator());
  warn_of_failure(state, [&] { wait_for_writer(state); });
  writer->save(folder, all, info);
  state.request_of_writer = request;
  state.on_saved = [&state, request, folder] { finish_save(state, request, folder); };
}

void save_after_hook(RunState& state, const std::filesystem::path& folder, const SaveRequest& request) {
  if (state.stage == Stage::kSanityCheck || state.is_trial) return;
  check_has_place(state, state.hooks.is_calling());
  state.promised.push_back(folder);
  state.hooks.defer([&state, folder, request] {
    std::erase(state.promised, folder);
    warn_of_failure(state, [&] { save_fit(state, folder, request); });
  });
}

void capture_after_hook(RunState& state, CheckpointCapture capture) {
  if (state.stage == Stage::kSanityCheck || state.is_trial) return;
  check_has_place(state, state.hooks.is_calling());
  state.hooks.defer([&state, capture = std::move(capture)] {
    const auto weights = weights_with(state, state.strategy->saved_shards(*state.module));
    const auto all = captured(state, weights, /*weights_only=*/false);
    warn_of_failure(state, [&] { capture(all.state, all.info); });
  });
}

void save_after_fit(RunState& state, const std::filesystem::path& folder, const SaveRequest& request) {
  check_has_place(state, false);
  save_fit(state, folder, request);
  await_save(state);
}

void notice_failed_save(RunState& state) {
  const auto& writer = state.checkpoint_writer;
  if (writer && writer->is_idle()) warn_of_failure(state, [&] { wait_for_writer(state); });
}

void await_save(RunState& state) {
  if (state.checkpoint_writer) wait_for_writer(state);
  state.checkpoint_writer = nullptr;
}

}  // namespace lockstep::detail
