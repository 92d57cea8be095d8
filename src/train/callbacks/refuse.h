// Errors of callbacks about options and runs that they cannot work with.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/strategy/strategy.h>
#include <lockstep/train/train_context.h>

namespace lockstep::detail {

/// Throws a ConfigError that names the callback `who`. @throws ConfigError, always
struct Refusal {
  std::string_view who;
  [[noreturn]] void operator()(const std::string& what, std::string expected, std::string got,
                               std::string hint = {}) const {
    throw ConfigError("train", {.what = std::string(who) + ": " + what,
                                .expected = std::move(expected),
                                .got = std::move(got),
                                .hint = std::move(hint)});
  }
};

/// For callbacks that need the whole model's weights on each rank.
/// @throws ConfigError naming the callback `who` where the strategy shards
inline void refuse_sharded(std::string_view who, const TrainContext& context) {
  if (!context.strategy().shards_gradients()) return;
  throw ConfigError("train", {.what = std::string(who) + " under a strategy that shards the model",
                              .expected = "single_device or ddp",
                              .got = std::string(context.strategy().name())});
}

}  // namespace lockstep::detail
