// The weights in a checkpoint of DeepSpeed, of any stage of ZeRO and number of ranks: every tensor whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/base/export.h>

#include "formats/stored_elements.h"
#include "formats/zero_checkpoint.h"

namespace lockstep::detail {

/// A tensor. Its elements lie in the files of the checkpoint.
struct StoredTensorView {
  std::string name;
  std::vector<std::int64_t> shape;
  StoredElements elements;
  std::string tied_to = {};  ///< the tensor before it that it is one with; empty where it is none
};

/// Buffers, frozen parameters, those that are trained, tied ones, as DeepSpeed's
/// get_fp32_state_dict_from_zero_checkpoint() has them; and what that leaves out: the frozen ones of stage 1,
/// and the model of stage 0. They are valid as long as `checkpoint`.
/// @throws CheckpointError naming file and key; ConfigError for `exclude_frozen` at stage 0, which does not
/// say which are frozen
LOCKSTEP_API std::vector<StoredTensorView> zero_weights(const ZeroCheckpoint& checkpoint,
                                                        bool exclude_frozen = false);

}  // namespace lockstep::detail
