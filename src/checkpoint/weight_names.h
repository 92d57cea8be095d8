// Tables of names, applied to names and tensors.
#pragma once

#include <optional>
#include <string>

#include <lockstep/checkpoint/weight_names.h>

#include "checkpoint/stored_weights.h"

namespace lockstep::detail {

/// @throws ConfigError naming a row whose names have not as many `*`, or that has no name of theirs
void check_rows(const WeightNames& names);

/// A name by the first row that fits.
struct TranslatedName {
  std::string name;  ///< empty: not read
  bool transpose = false;
};
TranslatedName to_ours(const WeightNames& names, const std::string& theirs);
TranslatedName to_theirs(const WeightNames& names, const std::string& ours);

/// With its two dimensions swapped. @throws CheckpointError with `what` it is when it has not two
StoredTensor transposed(const std::string& what, StoredTensor tensor);

/// A tensor of a file by its name in the module.
struct RenamedTensor {
  std::string theirs;
  StoredTensor stored;  ///< in the module's shape
};
using RenamedWeights = std::map<std::string, RenamedTensor>;

/// The weights under the module's names, without those that are not read.
/// @throws CheckpointError naming `where` and two tensors that get the same name, or one that has not two
/// dimensions to swap
RenamedWeights renamed(const StoredWeights& weights, const WeightNames& names, const std::string& where);

}  // namespace lockstep::detail
