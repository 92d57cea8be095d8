// WeightNames: what the tensors of a module are called in a file from elsewhere.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep {

/// A row of a table of names, which is read in both directions. A `*` stands for one part between dots,
/// mostly the number of a layer; both names have as many. The first row that fits a name counts, and a name
/// that none fits stays.
struct WeightName {
  std::string theirs;      ///< in the file: "transformer.h.*.ln_1.weight"
  std::string ours;        ///< in the module: "blocks.*.norm.weight". Empty: the tensor is not read
  bool transpose = false;  ///< swap the two dimensions, as for GPT-2's Conv1D, whose weights lie so
};
/// A table of names.
using WeightNames = std::vector<WeightName>;

/// The table for a module that holds the one of `names` as its submodule: `below("net", names)` has
/// "net.blocks.*.norm.weight" where `names` has "blocks.*.norm.weight".
LOCKSTEP_API WeightNames below(std::string_view submodule, WeightNames names);

}  // namespace lockstep
