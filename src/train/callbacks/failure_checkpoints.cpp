#include <lockstep/train/callbacks/failure_checkpoints.h>

#include <string>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/strategy/strategy.h>
#include <lockstep/train/trainer_options.h>

#include "checkpoint/local_checkpoints.h"
#include "checkpoint/staging_directory.h"
#include "train/callbacks/checkpoint_rules.h"
#include "train/callbacks/refuse.h"

namespace lockstep {
namespace {

constexpr detail::Refusal refuse_local{"LocalCheckpoint"};

}  // namespace

void describe(OptionVisitor& v, LocalCheckpointOptions& o) {
  v.field("every_n_train_steps", o.every_n_train_steps,
          "Optimizer steps between checkpoints in the memory of the nodes; 0: none", at_least(0));
  v.field("folder", o.folder, "Folder in memory on this node; empty: lockstep-UID in /dev/shm");
  v.field("replication_factor", o.replication_factor,
          "Number of nodes that store each part, including its own", at_least(1));
}

LocalCheckpoint::LocalCheckpoint(LocalCheckpointOptions options) : options_(std::move(options)) {
  if (options_.every_n_train_steps < 1)
    refuse_local("every_n_train_steps", ">= 1", std::to_string(options_.every_n_train_steps));
  if (options_.replication_factor < 1)
    refuse_local("replication_factor", ">= 1", std::to_string(options_.replication_factor));
}

LocalCheckpoint::~LocalCheckpoint() = default;

void LocalCheckpoint::setup(TrainContext& context) {
  checkpoints_ = nullptr;
  last_due_.reset();
  if (context.stage() != Stage::kFit || context.options().fast_dev_run) return;
  checkpoints_ = std::make_unique<detail::LocalCheckpoints>(
      options_.folder, context.run_dir(), options_.replication_factor, context.strategy().communicator());
}

StateTree LocalCheckpoint::state() const {
  StateTree state;
  if (last_due_) state.set("last_due", *last_due_);
  return state;
}

void LocalCheckpoint::load_state(const StateTree& state) { last_due_ = state.get<std::int64_t>("last_due"); }

// The checkpoint from which a run is resumed need not be saved again.
void LocalCheckpoint::on_train_start(TrainContext& context) {
  last_due_ = detail::first_due(last_due_, context.global_step(), options_.every_n_train_steps);
}

void LocalCheckpoint::on_train_batch_end(StepContext& step, const TrainOutput&) {
  if (!checkpoints_ || !detail::take_due(*last_due_, step.global_step(), options_.every_n_train_steps))
    return;
  step.capture_checkpoint(
      [this](const CheckpointState& state, const CheckpointInfo& info) { checkpoints_->save(state, info); });
}

void LocalCheckpoint::teardown(TrainContext&) { release(); }

void LocalCheckpoint::release() { checkpoints_ = nullptr; }

OnExceptionCheckpoint::OnExceptionCheckpoint(OnExceptionCheckpointOptions options)
    : options_(std::move(options)), dirpath_(options_.dirpath) {
  const bool is_named = !options_.filename.empty();
  if (is_named && options_.deadline.count() >= 0) return;
  throw ConfigError("train",
                    {.what = std::string("OnExceptionCheckpoint: ") + (is_named ? "deadline" : "filename"),
                     .expected = is_named ? ">= 0" : "a name without .ckpt",
                     .got = is_named ? std::to_string(options_.deadline.count()) + " ms" : "nothing"});
}

std::filesystem::path OnExceptionCheckpoint::ckpt_path() const {
  return dirpath_ / (options_.filename + ".ckpt");
}

void OnExceptionCheckpoint::setup(TrainContext& context) {
  if (options_.dirpath.empty()) dirpath_ = context.run_dir() / "checkpoints";
}

void OnExceptionCheckpoint::on_fit_start(TrainContext& context) { context.prepare_save_after_failure(); }

void OnExceptionCheckpoint::on_exception(TrainContext& context, const std::exception&) {
  if (context.options().fast_dev_run) return;
  saved_ = context.save_after_failure(ckpt_path(), {}, options_.deadline);
}

// A fast_dev_run must not remove the checkpoint of the real fit.
void OnExceptionCheckpoint::on_fit_end(TrainContext& context) {
  if (context.options().fast_dev_run || !context.is_global_zero()) return;
  detail::remove_checkpoint(ckpt_path());
  detail::remove_checkpoint(detail::weights_beside(ckpt_path()));
}

void describe(OptionVisitor& v, OnExceptionCheckpointOptions& o) {
  v.field("dirpath", o.dirpath, "Folder of the checkpoint; empty: checkpoints/ in the run's folder");
  v.field("filename", o.filename, "Its name without .ckpt");
  v.field("deadline", o.deadline, "How long a rank that fails waits for the others to fail, too",
          at_least(0));
}

}  // namespace lockstep
