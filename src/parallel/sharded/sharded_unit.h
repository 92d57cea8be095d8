// A unit: parameters that are gathered and released together, such as those of one block of a model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parallel/sharded/flat_parameter.h"

namespace lockstep::detail {

enum class UnitState {
  kSharded,    ///< its parameters have no memory
  kGathering,  ///< on their way
  kLive        ///< there
};

struct ShardedUnit {
  std::string name;               ///< the module's, such as "layers.3"; empty for what belongs to no block
  std::int64_t number = 0;        ///< equal on all ranks, from 1
  std::int64_t elements = 0;      ///< of the rows that a gather puts together
  bool is_root = false;           ///< holds what belongs to no block: often used first and last
  bool keeps_until_step = false;  ///< stays gathered, once it is, until parameters change
  bool is_spread = false;         ///< has parameters from all over the model: its gradients come last
  std::vector<std::unique_ptr<FlatParameter>> flats = {};  ///< one per dtype, trained and frozen apart
  UnitState state = UnitState::kSharded;
};

/// Where a member of a unit is to be found by its tag.
struct MemberPlace {
  std::size_t unit;
  std::size_t flat;
  std::size_t member;
};

}  // namespace lockstep::detail
