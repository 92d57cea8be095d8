// What DeepSpeed's configuration says about a run, beside how the model is sharded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/deepspeed/config.h>
#include <lockstep/precision/precision_options.h>
#include <lockstep/strategy/deepspeed.h>

namespace lockstep::detail {

/// A configuration, and what was noticed when it was read.
struct DeepSpeedRun {
  DeepSpeedConfig config;
  std::vector<std::string> warnings = {};
  bool is_from_file = false;
};

/// The type that a precision computes in.
deepspeed::Dtype dtype_of(std::string_view precision);

/// Reads the file that `options`, or LOCKSTEP_DEEPSPEED_CONFIG_PATH, names; without one it is what the
/// arguments come to, whatever the precision. @throws ConfigError
DeepSpeedRun deepspeed_run(const DeepSpeed& options);

/// The precision of a run: that of the configuration, where `given` is the default.
/// @throws ConfigError naming both, where they disagree
PrecisionOptions precision_of(const DeepSpeedConfig& config, const PrecisionOptions& given);

/// Micro-batches per step, where the configuration says it, or its batch sizes do for `world_size` ranks.
/// @throws ConfigError quoting the numbers where they contradict each other, or `accumulate_grad_batches`
std::optional<std::int64_t> accumulation_of(const DeepSpeedConfig& config, int world_size,
                                            std::optional<std::int64_t> accumulate_grad_batches);

}  // namespace lockstep::detail
