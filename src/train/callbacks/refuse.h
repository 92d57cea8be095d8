// For callbacks to which a rank's weights must be the whole model's.
#pragma once

#include <string_view>

#include <lockstep/train/train_context.h>

namespace lockstep::detail {

/// @throws ConfigError naming the callback `who` where the strategy shards
void refuse_sharded(std::string_view who, const TrainContext& context);

}  // namespace lockstep::detail
