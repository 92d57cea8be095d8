#include <lockstep/train/callbacks/local_checkpoint.h>

#include <string>
#include <utility>

#include <lockstep/strategy/strategy.h>
#include <lockstep/train/trainer_options.h>

#include "checkpoint/local_checkpoints.h"
#include "train/callbacks/refuse.h"
#include "train/callbacks/step_interval.h"

namespace lockstep {
namespace {

constexpr detail::Refusal refuse_local{"LocalCheckpoint"};

}  // namespace

void describe(OptionVisitor& v, LocalCheckpointOptions& o) {
  v.field("every_n_train_steps", o.every_n_train_steps,
          "Optimizer steps between checkpoints in the memory of the nodes; 0: none", at_least(0));
  v.field("folder", o.folder, "Folder in memory on this node; empty: lockstep-UID in /dev/shm");
  v.field("replication_factor", o.replication_factor, "How many nodes keep each part, with its own",
          at_least(1));
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

}  // namespace lockstep
