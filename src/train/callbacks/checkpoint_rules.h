// How checkpoints are named, from a template such as "{epoch}-{val_loss:.2f}", and after which steps one is
// due.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <lockstep/base/export.h>

namespace lockstep {
struct ModelCheckpointOptions;
class TrainContext;
}  // namespace lockstep

namespace lockstep::detail {

inline constexpr std::string_view kCheckpointExtension = ".ckpt";

/// A value by its name; `is_integer` ones are printed without a point.
struct NamedValue {
  double value = 0;
  bool is_integer = false;
};

/// `text` with every {NAME} or {NAME:SPEC} replaced by the value, behind `NAME=` if `inserts_names`. SPEC is
/// a width and precision as in Python and C: `.2f`, `03d`, `.1e`.
/// @throws ConfigError for a brace that is not closed or another SPEC
LOCKSTEP_API std::string checkpoint_name(std::string_view text, bool inserts_names,
                                         const std::function<NamedValue(std::string_view)>& value_of);

/// Where a ModelCheckpoint of these options saves.
std::filesystem::path checkpoint_folder(const ModelCheckpointOptions& options, const TrainContext& context);

/// NAME-weights.ckpt for NAME.ckpt: the name of a checkpoint of weights, where the run itself cannot be
/// saved.
std::filesystem::path weights_beside(const std::filesystem::path& folder);

// A checkpoint every n optimizer steps is due as soon as n or more steps have been taken since the last one,
// since a batch of manual optimization may take several. Where a batch takes one step, these are the
// multiples of n.

/// The step from which a run that begins or resumes at `global_step` counts: the one that a checkpoint
/// contains, if it does.
inline std::int64_t first_due(std::optional<std::int64_t> known, std::int64_t global_step,
                              std::int64_t every) {
  return known.value_or(every > 0 ? global_step - global_step % every : 0);
}

/// Whether `every` steps have been taken since `last_due`; sets that to `global_step` then.
inline bool take_due(std::int64_t& last_due, std::int64_t global_step, std::int64_t every) {
  if (global_step - last_due < every) return false;
  last_due = global_step;
  return true;
}

}  // namespace lockstep::detail
