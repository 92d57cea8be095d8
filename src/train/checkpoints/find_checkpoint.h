// Which checkpoint a run goes on from.
#pragma once

#include <optional>

#include <lockstep/checkpoint/checkpoint.h>

#include "train/checkpoints/checkpoint_session.h"

namespace lockstep {
class ModelCheckpoint;
}

namespace lockstep::detail {

/// The first one among the Trainer's callbacks; null where there is none.
const ModelCheckpoint* first_model_checkpoint(const RunSetup& setup);

/// Opens the checkpoint that ckpt_path or resume ask for, once: a later run of the same Trainer is about what
/// this one made. The first fit of a job that SLURM or a launcher has started anew goes before that: it goes
/// on from the newest that the job has left. Rank 0 chooses; all ranks share the check of it, and agree.
/// Collective.
/// @throws IoError, CheckpointError as Checkpoint's collective constructor
std::optional<Checkpoint> take_wanted_checkpoint(RunSetup& setup, CheckpointSession& checkpoints,
                                                 bool is_first_fit = false);

}  // namespace lockstep::detail
