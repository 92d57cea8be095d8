#include "train/callbacks/refuse_sharded.h"

#include <lockstep/base/error.h>
#include <lockstep/strategy/strategy.h>

namespace lockstep::detail {

void refuse_sharded(std::string_view who, const TrainContext& context) {
  if (!context.strategy().shards_gradients()) return;
  throw ConfigError("train", {.what = std::string(who) + " under a strategy that shards the model",
                              .expected = "single_device or ddp",
                              .got = std::string(context.strategy().name())});
}

}  // namespace lockstep::detail
