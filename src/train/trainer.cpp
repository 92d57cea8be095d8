#include <lockstep/train/trainer.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <stdexcept>
#include <utility>

#include <c10/util/ScopeExit.h>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/checkpoint/weights.h>
#include <lockstep/comm/collective_observer.h>
#include <lockstep/launch/join.h>
#include <lockstep/parallel/sync_batch_norm.h>
#include <lockstep/train/callbacks/progress_bar.h>

#include "checkpoint/staging_directory.h"
#include "launch/signals.h"
#include "state/module_tensors.h"
#include "train/callbacks/progress_bar.h"
#include "train/checkpoints/fit_checkpoint.h"
#include "train/checkpoints/last_weights.h"
#include "train/checkpoints/run_checkpoints.h"
#include "train/data/run_data.h"
#include "train/logging/run_log.h"
#include "train/logging/terminal.h"
#include "train/loops/evaluation_loop.h"
#include "train/loops/fit_loop.h"
#include "train/loops/trainer_state.h"
#include "train/options/accumulation_changes.h"
#include "train/options/deepspeed_options.h"
#include "train/options/run_record.h"
#include "train/run_lifecycle.h"

namespace lockstep {

using detail::TrainerState;

namespace detail {

namespace {

// While an object of this class exists, a profiler records collectives as actions `[Communicator].all_reduce`
// and so on, in the threads that carry them out.
class ProfiledCollectives final : private CollectiveObserver {
 public:
  explicit ProfiledCollectives(Profiler& profiler) : profiler_(profiler) {
    for (const char* name : collective_names())
      actions_.emplace_back("[Communicator]." + std::string(name), ActionCategory::kCollective);
  }

 private:
  void on_collective(const CollectiveEvent& event) noexcept override {
    profiler_.record(actions_[event.kind], event.begin, event.end);
  }

  Profiler& profiler_;
  std::vector<Action> actions_;
  ObservedCollectives scope_{*this};  // last: what it observes is complete
};

// Measures the training loop. The destructor writes the figures, so that a loop that throws is measured, too.
class LoopFigures {
 public:
  LoopFigures(RunFigures& figures, const RunSetup& setup, const FitProgress& progress)
      : figures_(figures),
        setup_(setup),
        progress_(progress),
        before_(progress),
        sent_before_(setup.strategy->bytes_sent()) {
    figures_.leg_began = std::chrono::steady_clock::now();
  }
  ~LoopFigures() {
    figures_.seconds = figures_.leg_seconds();
    figures_.leg_began.reset();
    figures_.steps = progress_.global_step - before_.global_step;
    figures_.samples = progress_.samples - before_.samples;
    figures_.bytes_sent = setup_.strategy->bytes_sent() - sent_before_;
  }
  LoopFigures(const LoopFigures&) = delete;
  LoopFigures& operator=(const LoopFigures&) = delete;

 private:
  RunFigures& figures_;
  const RunSetup& setup_;
  const FitProgress& progress_;
  FitProgress before_;
  std::uint64_t sent_before_;
};

// A file that could not be written makes the run fail after all of its hooks have been called.
void keep_failure(const FitParts& fit, const std::function<void()>& save) {
  try {
    save();
  } catch (const IoError& error) {
    if (!fit.checkpoints.save_failure) fit.checkpoints.save_failure = std::current_exception();
    if (fit.setup.is_global_zero()) log_warning(error.what());
  }
}

// A fit without a batch must not replace the last.ckpt of an earlier run.
bool has_trained(const FitProgress& progress) { return progress.samples > 0 || progress.epoch > 0; }

std::filesystem::path last_checkpoint_of(const RunSetup& setup) {
  return setup.run_dir / "checkpoints" / "last.ckpt";
}

// Found now rather than when an epoch is lost.
void check_place_of_last(const RunSetup& setup) {
  if (setup.is_global_zero() && setup.options.enable_checkpointing)
    check_may_be_saved_to(last_checkpoint_of(setup));
}

void write_last(const FitParts& fit) {
  if (!fit.setup.options.enable_checkpointing) return;
  keep_failure(fit, [&] {
    save_fit(fit, last_checkpoint_of(fit.setup));
    await_save(fit);
  });
}

void save_last(const FitParts& fit) {
  if (has_trained(fit.progress) && !std::exchange(fit.checkpoints.has_saved_last, true)) write_last(fit);
}

// A number that grows with each write to a parameter or buffer, except by way of data().
std::int64_t writes_to_weights(const FitParts& fit) {
  std::int64_t writes = 0;
  for (const auto& one : fit.setup.optimizers) {
    for (const auto& parameter : fit.setup.strategy->trained_parameters(*one.optimizer))
      writes += parameter._version();
  }
  for (const auto& buffer : fit.setup.module->buffers())
    if (!buffer.is_inference()) writes += buffer._version();  // others count nothing
  return writes;
}

// ModelCheckpoint saves at the end of an epoch that is cut, too, behind the moment from which a longer run
// goes on: last.ckpt tells it of those files. Weights that hooks have changed since are not that moment's.
void tell_last_of_saved_files(const FitParts& fit, std::int64_t writes_before) {
  const bool is_due = fit.setup.is_global_zero() && fit.checkpoints.has_saved_last &&
                      has_saved_since_resume_point(fit) && writes_to_weights(fit) == writes_before;
  if (!fit.setup.communicator().broadcast_bytes(is_due ? "1" : "", 0).empty()) write_last(fit);
}

void train(TrainerState& state) {
  const LoopFigures figures(state.log.figures, state.setup, state.progress);
  auto& checkpoints = state.checkpoints;
  std::int64_t writes = 0;
  checkpoints.on_interruption = [&fit = state.fit, &writes] {
    keep_resume_point(fit);
    save_last(fit);
    writes = writes_to_weights(fit);
  };
  checkpoints.after_cut_epoch = [&fit = state.fit, &writes] { tell_last_of_saved_files(fit, writes); };
  FitLoop(state).run([&] {
    if (checkpoints.resume_point) load_resume_point(state.fit);
  });
  if (!checkpoints.resume_point) keep_resume_point(state.fit);
}

// The layers have a group of their own, so that they need not wait for gradients that are being exchanged.
std::optional<SyncBatchNorm> synced_batch_norm(const RunSetup& setup) {
  if (!setup.options.sync_batchnorm || setup.communicator().size() == 1) return std::nullopt;
  return std::optional<SyncBatchNorm>(std::in_place, *setup.module, setup.communicator().split(0).value());
}

// A failure to write one file must not keep the others from being written.
void save_results(const FitParts& fit) {
  const auto& setup = fit.setup;
  setup.strategy->check_replicas(*setup.module);
  if (!setup.options.run.save_weights.empty()) {
    const auto weights = setup.strategy->module_state(*setup.module);
    if (setup.is_global_zero())
      keep_failure(fit, [&] { write_last_weights(setup.options.run.save_weights, weights); });
  }
  save_last(fit);
  keep_failure(fit, [&] { await_save(fit); });  // of a callback
  if (setup.is_global_zero() && requeuing_environment(setup) != nullptr && !fit.checkpoints.save_failure)
    remove_hpc_checkpoints(setup);
  end_local_checkpoints(setup, fit.checkpoints);
}

// The checkpoint that the fit resumes, if any. The initial values of what it contains need not be computed.
std::optional<Checkpoint> checkpoint_to_resume(const FitParts& fit, bool is_first_fit) {
  auto from = take_wanted_checkpoint(fit.setup, fit.checkpoints, is_first_fit);
  if (from && fit.setup.module->strict_loading()) forget_first_values(*fit.setup.module);
  return from;
}

// Takes the checkpoint by value and closes it: it may be replaced on disk while the fit runs.
bool resume(const FitParts& fit, std::optional<Checkpoint> from) {
  if (from) load_fit(fit, *from);
  return from.has_value();
}

// The group of ranks is closed after a failure.
void require_usable(const RunSetup& setup) {
  if (setup.strategy) return;
  throw ConfigError("train", {.what = "this Trainer's last run failed",
                              .expected = "a new Trainer",
                              .got = "another run",
                              .hint = "its group of ranks is closed"});
}

// Without a handler the signal would end the process.
std::optional<launch::SignalFlag> requeue_flag(const RunSetup& setup) {
  const auto* slurm = requeuing_environment(setup);
  if (slurm == nullptr) return std::nullopt;
  return std::optional<launch::SignalFlag>(std::in_place, slurm->requeue_signal());
}

// Runs the body of fit, validate, test or predict, and ends the run where the body throws.
void run_guarded(const FitParts& fit, const SearchRun& search, const std::function<void()>& body) {
  auto& setup = fit.setup;
  require_usable(setup);
  setup.facts.is_under_way = true;
  const auto over = c10::make_scope_exit([&] { setup.facts.is_under_way = false; });
  const auto requeue = requeue_flag(setup);
  try {
    join_ranks(setup, fit.log);
    open_run_directory(setup, fit.log);
    std::optional<ProfiledCollectives> collectives;
    if (setup.profiler) {
      collectives.emplace(*setup.profiler);
      setup.profiler->setup(std::string(stage_name(setup.stage)), setup.environment->global_rank(),
                            setup.run_dir);
    }
    body();
  } catch (const std::exception& error) {
    end_failed_run(fit, search, error);
    throw;
  } catch (...) {
    end_failed_run(fit, search, std::runtime_error("an exception that is no std::exception"));
    throw;
  }
}

void say_on_rank_0(const RunSetup& setup, const RunNotes& notes) {
  if (!setup.is_global_zero()) return;
  for (const auto& text : notes.infos) log_info(text);
  for (const auto& text : notes.warnings) log_warning(text);
}

// Without a progress bar, whose callbacks print them otherwise.
void print_results(const RunSetup& setup, const Metrics& metrics) {
  const auto is_bar = [](const auto& callback) {
    return dynamic_cast<const ProgressBar*>(callback.get()) != nullptr;
  };
  const bool is_test = setup.stage == Stage::kTest;
  if (metrics.empty() || !setup.is_global_zero() || setup.options.barebones ||
      (!is_test && setup.stage != Stage::kValidate) || std::ranges::any_of(setup.callbacks, is_bar))
    return;
  for (const auto& line : result_lines(is_test ? "Test metric" : "Validate metric", metrics))
    print_line(line);
}

// Resets what an earlier fit of this Trainer has left.
void forget_fit(const FitParts& fit) {
  auto& setup = fit.setup;
  if (has_trained(fit.progress)) setup.precision = make_precision(setup.options.precision);  // its loss scale
  fit.progress = {};
  forget_accumulation(setup);
  fit.log.figures = {.start_to_first_collective_s = fit.log.figures.start_to_first_collective_s};
  fit.stop = {};
  auto& checkpoints = fit.checkpoints;
  checkpoints.has_saved_last = false;
  checkpoints.promised.clear();
  checkpoints.best_of_last_fit =
      setup.model_checkpoint ? setup.model_checkpoint->best_model_path() : std::filesystem::path();
  checkpoints.resume_point.reset();
  checkpoints.save_failure = nullptr;
}

}  // namespace
}  // namespace detail

using namespace detail;

Trainer::Trainer(TrainerOptions options) : state_(std::make_unique<TrainerState>()) {
  RunNotes notes;
  options = effective(std::move(options), notes);
  const bool is_of_program = options.run.run_dir.empty() || !options.run.config_yaml.empty();
  if (options.run.run_dir.empty()) options.run.run_dir = env::get("LOCKSTEP_RUN_DIR").value_or("");
  auto& setup = state_->setup;
  setup.has_run_dir_of_program = is_of_program && !options.run.run_dir.empty();
  setup.options = std::move(options);
  apply_determinism(setup.options, notes);
  find_ranks(setup);
  say_on_rank_0(setup, notes);
  repeat_seed(setup.environment->global_rank());
  setup.deepspeed = apply_deepspeed(setup.options, setup.shape.devices * setup.shape.num_nodes);
  setup.accumulation.given = setup.options.accumulate_grad_batches;
  setup.model_checkpoint = first_model_checkpoint(setup.options.callbacks);
  setup.precision = make_precision(setup.options.precision);
  setup.checkpoint_io = own_checkpoint_io(setup.options);
  if (!setup.checkpoint_io) setup.checkpoint_io = std::make_shared<CheckpointIO>();
  setup.profiler = setup.options.profiler.get();
}

Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

void Trainer::want_checkpoint(const std::string& ckpt_path) {
  if (!ckpt_path.empty()) state_->setup.options.run.ckpt_path = ckpt_path;
}

void Trainer::run_fit(std::shared_ptr<AnyModule> module, DataSource source) {
  auto& state = *state_;
  auto& setup = state.setup;
  auto& data = state.data;
  auto& progress = state.progress;
  const auto& fit = state.fit;
  begin_run(setup, state.log, Stage::kFit, std::move(module));
  const bool is_first_fit = !has_trained(progress);
  std::optional<launch::SignalFlag> terminate;  // until all is saved
  forget_fit(fit);
  require_best(setup, state.checkpoints);
  run_guarded(state.fit, state.search, [&] {
    open_training_data(setup, data, progress, source);
    if (setup.deepspeed) check_batch_size(*setup.deepspeed, trained_batches(setup, data, progress));
    collect_hooks(setup, state.hooks);
    std::optional<torch::autograd::DetectAnomalyGuard> anomaly;
    if (setup.options.detect_anomaly) anomaly.emplace();
    prepare_module(setup, state.hooks, state.context);
    auto from = state.search.body ? std::nullopt : checkpoint_to_resume(fit, is_first_fit);
    if (setup.options.enable_checkpointing || !setup.options.run.save_weights.empty())
      require_storable(*setup.module);
    set_up_optimizers(setup, data, progress);
    const auto batch_norm = synced_batch_norm(setup);
    if (state.search.body) {
      write_record(setup);
      state.search.body();
      return end_search(state.fit, state.search);
    }
    check_place_of_last(setup);
    setup.accumulation.first = setup.options.accumulate_grad_batches;
    const bool goes_on = resume(fit, std::exchange(from, std::nullopt));
    begin_recorded_run(setup);
    forget_local_checkpoints(setup);
    state.hooks.call(hook::on_fit_start, state.context);
    log_hyper_parameters(setup, state.log);
    // What is wrong with them is refused now, not when an epoch is lost.
    warn_of_empty(setup, evaluation_limits(setup, data.val, Stage::kValidate), Stage::kValidate);
    if (!goes_on) sanity_check(state);
    terminate.emplace(SIGTERM);
    train(state);
    save_results(fit);
    end_run(state.fit, state.search);
  });
  if (terminate) terminate->hand_on();
  const auto failure = state.checkpoints.save_failure;
  if (!failure) return;
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    note_failure(error);
    throw;
  }
}

Metrics Trainer::run_evaluation(std::shared_ptr<AnyModule> module, DataSource source, Stage stage) {
  auto& state = *state_;
  auto& setup = state.setup;
  begin_run(setup, state.log, stage, std::move(module));
  require_best(setup, state.checkpoints);
  run_guarded(state.fit, state.search, [&] {
    auto loaders = open_evaluation_data(setup, state.data, source);
    collect_hooks(setup, state.hooks);
    prepare_module(setup, state.hooks, state.context);
    if (state.search.body) {
      setup.strategy->setup_evaluation(*setup.module);
      write_record(setup);
      state.search.body();
      return end_search(state.fit, state.search);
    }
    if (const auto from = take_wanted_checkpoint(setup, state.checkpoints)) {
      if (load_for_evaluation(state.fit, *from)) loaders = reopen_evaluation_data(setup, state.data);
      record_resumed_from(setup, from->folder());
    }
    setup.strategy->setup_evaluation(*setup.module);
    begin_recorded_run(setup);
    const auto limits = evaluation_limits(setup, loaders, stage);
    warn_of_empty(setup, limits, stage);
    state.predictions.by_loader.assign(loaders.size(), {});
    state.log.results.assign(loaders.size(), {});
    EvaluationProgress progress;
    run_evaluation_loop(state, loaders, stage, limits, progress);
    print_results(setup, state.log.board.callback.read());
    end_run(state.fit, state.search);
  });
  return state.log.board.callback.read();
}

std::vector<std::vector<at::Tensor>> Trainer::run_prediction(std::shared_ptr<AnyModule> module,
                                                             DataSource source, bool return_predictions) {
  state_->predictions.are_kept = return_predictions;
  run_evaluation(std::move(module), std::move(source), Stage::kPredict);
  return std::exchange(state_->predictions.by_loader, {});
}

std::vector<at::Tensor> Trainer::flat(const std::vector<std::vector<at::Tensor>>& by_loader) {
  std::vector<at::Tensor> all;
  for (const auto& loader : by_loader) all.insert(all.end(), loader.begin(), loader.end());
  return all;
}

void Trainer::save_checkpoint(const std::filesystem::path& folder, bool weights_only) {
  const auto& fit = state_->fit;
  refuse_under_way(fit.setup, "save_checkpoint()", "call save_checkpoint() of the hook's context");
  require_usable(fit.setup);
  join_ranks(fit.setup, fit.log);
  save_after_fit(fit, folder, {.weights_only = weights_only});
  fit.setup.strategy->teardown();
}

const ModelCheckpoint* Trainer::checkpoint_callback() const { return state_->setup.model_checkpoint.get(); }
const std::vector<Metrics>& Trainer::results() const { return state_->log.results; }
const Metrics& Trainer::callback_metrics() const { return state_->log.board.callback.read(); }
std::int64_t Trainer::global_step() const { return state_->progress.global_step; }
std::int64_t Trainer::current_epoch() const { return state_->progress.epoch; }
bool Trainer::is_global_zero() const { return state_->setup.is_global_zero(); }
int Trainer::global_rank() const { return state_->setup.environment->global_rank(); }
int Trainer::world_size() const { return state_->setup.environment->world_size(); }
const std::filesystem::path& Trainer::run_dir() const { return state_->setup.run_dir; }

void Trainer::print(std::string_view text) const {
  if (is_global_zero()) print_line(text);
}

}  // namespace lockstep
