#include "train/callbacks/refuse.h"

#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/strategy/strategy.h>

namespace lockstep::detail {

void Refusal::operator()(const std::string& what, std::string expected, std::string got,
                         std::string hint) const {
  throw ConfigError("train", {.what = std::string(who) + ": " + what,
                              .expected = std::move(expected),
                              .got = std::move(got),
                              .hint = std::move(hint)});
}

void refuse_sharded(std::string_view who, const TrainContext& context) {
  if (!context.strategy().shards_gradients()) return;
  throw ConfigError("train", {.what = std::string(who) + " under a strategy that shards the model",
                              .expected = "single_device or ddp",
                              .got = std::string(context.strategy().name())});
}

}  // namespace lockstep::detail
