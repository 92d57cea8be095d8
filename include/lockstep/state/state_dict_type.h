// How the tensors of a model that ranks share are spread over files.
#pragma once

namespace lockstep {

/// FSDP's state_dict_type.
enum class StateDictType {
  kFull,    ///< rank 0 writes: one file, as Python expects it
  kSharded  ///< every rank writes its share, as large as the others': the fastest
};

}  // namespace lockstep
