// What callbacks say of options and of runs that they cannot work with.
#pragma once

#include <string>
#include <string_view>

#include <lockstep/train/train_context.h>

namespace lockstep::detail {

/// Throws in the name of the callback `who`. @throws ConfigError, always
struct Refusal {
  std::string_view who;
  [[noreturn]] void operator()(const std::string& what, std::string expected, std::string got,
                               std::string hint = {}) const;
};

/// For callbacks to which a rank's weights must be the whole model's.
/// @throws ConfigError naming the callback `who` where the strategy shards
void refuse_sharded(std::string_view who, const TrainContext& context);

}  // namespace lockstep::detail
