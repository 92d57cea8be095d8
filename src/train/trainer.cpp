#include <lockstep/train/trainer.h>

#include <csignal>
#include <functional>
#include <stdexcept>
#include <utility>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/base/process.h>
#include <lockstep/checkpoint/weights.h>
#include <lockstep/launch/join.h>
#include <lockstep/parallel/sync_batch_norm.h>

#include "launch/signal_flag.h"
#include "state/module_tensors.h"
#include "train/deepspeed_options.h"
#include "train/determinism.h"
#include "train/effective_options.h"
#include "train/end_run.h"
#include "train/evaluation_loop.h"
#include "train/find_checkpoint.h"
#include "train/fit_checkpoint.h"
#include "train/fit_loop.h"
#include "train/job_checkpoints.h"
#include "train/local_copies.h"
#include "train/make_loggers.h"
#include "train/open_data.h"
#include "train/plugins.h"
#include "train/prepare_run.h"
#include "train/profiled_collectives.h"
#include "train/ranks.h"
#include "train/run_state.h"
#include "train/set_up_optimizers.h"
#include "train/summary.h"
#include "train/terminal.h"

namespace lockstep {

using detail::RunState;

namespace detail {

namespace {

// Measures the loop, also one that fails.
class LoopFigures {
 public:
  explicit LoopFigures(RunState& state)
      : state_(state), before_(state.progress), sent_before_(state.strategy->bytes_sent()) {}
  ~LoopFigures() {
    auto& figures = state_.figures;
    figures.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    figures.steps = state_.progress.global_step - before_.global_step;
    figures.samples = state_.progress.samples - before_.samples;
    figures.bytes_sent = state_.strategy->bytes_sent() - sent_before_;
  }
  LoopFigures(const LoopFigures&) = delete;
  LoopFigures& operator=(const LoopFigures&) = delete;

 private:
  RunState& state_;
  Progress before_;
  std::uint64_t sent_before_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Where a file is missing the run has failed, but not before it has ended in good order.
void keep_failure(RunState& state, const std::function<void()>& save) {
  try {
    save();
  } catch (const IoError& error) {
    if (!state.save_failure) state.save_failure = std::current_exception();
    if (state.is_global_zero()) log_warning(error.what());
  }
}

// Without a batch there is nothing that would be worth the checkpoint of an earlier run.
bool has_trained(const RunState& state) { return state.progress.samples > 0 || state.progress.epoch > 0; }

void save_last(RunState& state) {
  if (!has_trained(state)) return;
  if (std::exchange(state.has_saved_last, true) || !state.options.enable_checkpointing) return;
  keep_failure(state, [&] {
    save_fit(state, state.run_dir / "checkpoints" / "last.ckpt");
    await_save(state);
  });
}

void train(RunState& state) {
  const LoopFigures figures(state);
  state.on_interruption = [&state] {
    keep_moment(state);
    save_last(state);
  };
  FitLoop(state).run([&] {
    if (state.moment) load_moment(state);
  });
  if (!state.moment) keep_moment(state);
}

// A group of its own spares the layers from waiting for gradients that are under way.
std::optional<SyncBatchNorm> synced_batch_norm(const RunState& state) {
  if (!state.options.sync_batchnorm || state.communicator().size() == 1) return std::nullopt;
  return std::optional<SyncBatchNorm>(std::in_place, *state.module, state.communicator().split(0).value());
}

// Neither file is kept from being written by the other.
void save_results(RunState& state) {
  state.strategy->check_replicas(*state.module);
  if (!state.options.run.save_weights.empty()) {
    const auto weights = state.strategy->module_state(*state.module);
    if (state.is_global_zero())
      keep_failure(state, [&] { write_weights(state.options.run.save_weights, weights); });
  }
  save_last(state);
  keep_failure(state, [&] { await_save(state); });  // of a callback
  if (state.is_global_zero() && requeuing_environment(state) != nullptr && !state.save_failure)
    remove_hpc_checkpoints(state);
  end_local_checkpoints(state);
}

// What the fit goes on from, if anything: what it brings need not be computed first.
std::optional<Checkpoint> wanted_checkpoint(RunState& state, bool is_first_fit) {
  if (state.search) return std::nullopt;
  auto from = take_wanted_checkpoint(state, is_first_fit);
  if (from && state.module->strict_loading()) forget_first_values(state);
  return from;
}

// The checkpoint is open no longer than this: its place on the disk may be wanted for another one.
bool resume(RunState& state, std::optional<Checkpoint> from) {
  if (from) load_fit(state, *from);
  return from.has_value();
}

// A Trainer that failed has no group any more.
void require_usable(const RunState& state) {
  if (state.strategy) return;
  throw ConfigError("train", {.what = "this Trainer's last run failed",
                              .expected = "a new Trainer",
                              .got = "another run",
                              .hint = "its group of ranks is closed"});
}

// By default it ends the process.
std::optional<launch::SignalFlag> requeue_flag(const RunState& state) {
  const auto* slurm = requeuing_environment(state);
  if (slurm == nullptr) return std::nullopt;
  return std::optional<launch::SignalFlag>(std::in_place, slurm->requeue_signal());
}

// Runs one entry point.
void run_guarded(RunState& state, const std::function<void()>& body) {
  require_usable(state);
  const auto requeue = requeue_flag(state);
  try {
    join_ranks(state);
    open_run_directory(state);
    std::optional<ProfiledCollectives> collectives;
    if (state.profiler) {
      collectives.emplace(*state.profiler);
      state.profiler->setup(std::string(stage_name(state.stage)), state.environment->global_rank(),
                            state.run_dir);
    }
    body();
  } catch (const std::exception& error) {
    end_failed_run(state, error);
    throw;
  } catch (...) {
    end_failed_run(state, std::runtime_error("an exception that is no std::exception"));
    throw;
  }
}

void check_trained_batches(const RunState& state) {
  if (!state.deepspeed) return;
  check_batch_size(*state.deepspeed, trained_batches(state));
}

}  // namespace
}  // namespace detail

using namespace detail;

Trainer::Trainer(TrainerOptions options) : state_(std::make_unique<RunState>()) {
  options = effective(std::move(options));
  const bool is_of_program = options.run.run_dir.empty() || !options.run.config_yaml.empty();
  if (options.run.run_dir.empty()) options.run.run_dir = env::get("LOCKSTEP_RUN_DIR").value_or("");
  state_->has_run_dir_of_program = is_of_program && !options.run.run_dir.empty();
  state_->options = std::move(options);
  apply_determinism(state_->options);
  find_ranks(*state_);
  state_->deepspeed = apply_deepspeed(state_->options, state_->shape.devices * state_->shape.num_nodes);
  state_->precision = make_precision(state_->options.precision);
  state_->checkpoint_io = checkpoint_io(state_->options);
  state_->profiler = state_->options.profiler.get();
}

Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

void Trainer::want_checkpoint(const std::string& ckpt_path) {
  if (!ckpt_path.empty()) state_->options.run.ckpt_path = ckpt_path;
}

void Trainer::run_fit(std::shared_ptr<AnyModule> module, DataSource data) {
  RunState& state = *state_;
  begin_run(state, Stage::kFit, std::move(module));
  const bool is_first_fit = !has_trained(state);
  std::optional<launch::SignalFlag> terminate;  // until all is saved
  state.progress = {};
  state.next_accumulation.reset();
  state.figures = {.start_to_first_collective_s = state.figures.start_to_first_collective_s};
  state.should_stop = state.keeps_stop = state.stops_this_run = state.stop_agreed = false;
  state.stop_wishes.clear();
  state.has_saved_last = false;
  state.promised.clear();
  state.best_of_last_fit =
      checkpoint_callback() ? checkpoint_callback()->best_model_path() : std::filesystem::path();
  state.moment.reset();
  state.save_failure = nullptr;
  run_guarded(state, [&] {
    open_training_data(state, data);
    check_trained_batches(state);
    collect_hooks(state);
    std::optional<torch::autograd::DetectAnomalyGuard> anomaly;
    if (state.options.detect_anomaly) anomaly.emplace();
    TrainContext context(state);
    prepare_module(state);
    auto from = wanted_checkpoint(state, is_first_fit);
    if (state.options.enable_checkpointing || !state.options.run.save_weights.empty())
      require_storable(*state.module);
    set_up_optimizers(state);
    const auto batch_norm = synced_batch_norm(state);
    if (state.search) {
      state.search();
      return end_search(state);
    }
    const bool goes_on = resume(state, std::exchange(from, std::nullopt));
    forget_local_checkpoints(state);
    state.hooks.call(hook::on_fit_start, context);
    log_hyper_parameters(state);
    warn_of_empty(state, state.val_loaders, Stage::kValidate);
    if (!goes_on) sanity_check(state);
    terminate.emplace(SIGTERM);
    train(state);
    save_results(state);
    end_run(state);
  });
  if (terminate) terminate->hand_on();
  if (!state.save_failure) return;
  try {
    std::rethrow_exception(state.save_failure);
  } catch (const std::exception& error) {
    note_failure(error);
    throw;
  }
}

Metrics Trainer::run_evaluation(std::shared_ptr<AnyModule> module, DataSource data, Stage stage) {
  RunState& state = *state_;
  begin_run(state, stage, std::move(module));
  run_guarded(state, [&] {
    const auto loaders = open_evaluation_data(state, data);
    collect_hooks(state);
    prepare_module(state);
    if (state.search) {
      state.strategy->setup_evaluation(*state.module);
      state.search();
      return end_search(state);
    }
    if (const auto from = take_wanted_checkpoint(state)) load_weights_of(state, *from);
    state.strategy->setup_evaluation(*state.module);
    warn_of_empty(state, loaders, stage);
    state.predictions.assign(loaders.size(), {});
    state.results.assign(loaders.size(), {});
    run_evaluation_loop(state, loaders, stage, evaluation_limits(state, loaders, stage));
    end_run(state);
  });
  return state.board.callback;
}

std::vector<std::vector<at::Tensor>> Trainer::run_prediction(std::shared_ptr<AnyModule> module,
                                                             DataSource data, bool return_predictions) {
  state_->keeps_predictions = return_predictions;
  run_evaluation(std::move(module), std::move(data), Stage::kPredict);
  return std::exchange(state_->predictions, {});
}

std::vector<at::Tensor> Trainer::flat(const std::vector<std::vector<at::Tensor>>& by_loader) {
  std::vector<at::Tensor> all;
  for (const auto& loader : by_loader) all.insert(all.end(), loader.begin(), loader.end());
  return all;
}

void Trainer::save_checkpoint(const std::filesystem::path& folder, bool weights_only) {
  RunState& state = *state_;
  require_usable(state);
  join_ranks(state);
  save_after_fit(state, folder, {.weights_only = weights_only});
  state.strategy->teardown();
}

const ModelCheckpoint* Trainer::checkpoint_callback() const { return first_model_checkpoint(*state_); }
const std::vector<Metrics>& Trainer::results() const { return state_->results; }
const Metrics& Trainer::callback_metrics() const { return state_->board.callback; }
std::int64_t Trainer::global_step() const { return state_->progress.global_step; }
std::int64_t Trainer::current_epoch() const { return state_->progress.epoch; }
bool Trainer::is_global_zero() const { return state_->is_global_zero(); }
int Trainer::global_rank() const { return state_->environment->global_rank(); }
int Trainer::world_size() const { return state_->environment->world_size(); }
const std::filesystem::path& Trainer::run_dir() const { return state_->run_dir; }

void Trainer::print(std::string_view text) const {
  if (is_global_zero()) print_line(text);
}

}  // namespace lockstep
