// Checkpoints by DeepSpeed's names: several in a folder, each under its tag, and a file `latest` with the tag
// of the newest one. What lies under a tag is a checkpoint of ours, or, to be loaded, one of DeepSpeed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <lockstep/base/export.h>
#include <lockstep/deepspeed/side_sections.h>
#include <lockstep/fabric/fabric.h>

namespace lockstep::deepspeed {

/// How save_checkpoint() saves.
struct SaveCheckpointOptions {
  std::string tag = {};                          ///< the checkpoint's name; empty: global_step<global_step>
  std::optional<std::int64_t> global_step = {};  ///< optimizer steps so far, 0 or more, for a tag
  bool save_latest = true;                       ///< let `latest` name it
  SaveFilter filter = {};                        ///< as that of Fabric::save()
  /// Where ranks give different tags: an error on all of them, or that of rank 0 for all, with a warning or
  /// without. None: what `checkpoint.tag_validation` of the strategy's configuration says, else a warning.
  std::optional<EnumOption<TagValidation>> tag_validation = {};
};

/// How load_checkpoint() loads.
struct LoadCheckpointOptions {
  std::string tag = {};                  ///< which checkpoint; empty: the one that `latest` names
  bool load_module_strict = true;        ///< as LoadOptions::strict
  bool load_optimizer_states = true;     ///< false: optimizers stay as they are
  bool load_lr_scheduler_states = true;  ///< false: schedulers stay as they are
  bool load_module_only = false;         ///< all but models stay as they are
};

/// What load_checkpoint() has loaded.
struct LoadedCheckpoint {
  std::filesystem::path folder;  ///< of the checkpoint
  StateTree client_state;        ///< what else it holds
};

/// What DeepSpeed's engine.save_checkpoint() does: Fabric::save() to `directory`/tag and, when that is
/// complete on all ranks, `latest`, each complete or as it was. Returns where the checkpoint is:
///
///     ls::deepspeed::save_checkpoint(fabric, "run", {{"model", model}, {"optimizer", optimizer}, {"step",
///     step}},
///                                    {.global_step = step});  // run/global_step100/, run/latest
///
/// Collective, blocking.
/// @throws ConfigError on every rank, for tags that differ, or one that is no name of a folder; as
/// Fabric::save()
LOCKSTEP_API std::filesystem::path save_checkpoint(const Fabric& fabric,
                                                   const std::filesystem::path& directory,
                                                   const NamedStates& states,
                                                   const SaveCheckpointOptions& options = {});

/// What DeepSpeed's engine.load_checkpoint() does, from any stage and number of ranks to any other.
/// `directory` may be a checkpoint itself. Nothing is loaded, and nothing returned, where it has no `latest`
/// and no tag is given: a run that begins; a warning says so.
///
/// Of a checkpoint that DeepSpeed has written (stages 1 to 3, of stage 0 models alone) models take the
/// weights in float32; optimizers what they keep of each parameter, the number of steps, lr, weight_decay and
/// betas; schedulers of DeepSpeed's and torch's kind how far they have come; the precision the loss scale;
/// other states what is saved under their names, such as global_steps or what client_state had. Every byte is
/// checked.
///
/// Collective, blocking.
/// @throws IoError, CheckpointError as Fabric::load(); naming file and rank of what is missing or damaged
LOCKSTEP_API std::optional<LoadedCheckpoint> load_checkpoint(const Fabric& fabric,
                                                             const std::filesystem::path& directory,
                                                             const NamedStates& states,
                                                             const LoadCheckpointOptions& options = {});

}  // namespace lockstep::deepspeed
