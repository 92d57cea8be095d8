// How the tensors of a model that ranks share are spread over files.
#pragma once

#include <span>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>

namespace lockstep {

/// FSDP's state_dict_type.
enum class StateDictType {
  kFull,    ///< rank 0 writes: one file, as Python expects it
  kSharded  ///< every rank writes its share, as large as the others': the fastest
};

LOCKSTEP_API std::span<const OptionName<StateDictType>> option_names(StateDictType);

}  // namespace lockstep
