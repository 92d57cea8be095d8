// Names of checkpoints from a template such as "{epoch}-{val_loss:.2f}".
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include <lockstep/base/export.h>

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

/// NAME-weights.ckpt for NAME.ckpt: the name of a checkpoint of weights, where the run itself cannot be
/// saved.
std::filesystem::path weights_beside(const std::filesystem::path& folder);

}  // namespace lockstep::detail
