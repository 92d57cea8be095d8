// What whoever runs the training adds to a configuration.
#pragma once

#include <cstdint>
#include <optional>

#include <lockstep/deepspeed/config.h>

namespace lockstep {

/// What a Trainer knows; nothing: not said there.
struct TrainerSettings {
  std::optional<std::int64_t> micro_batch_size = {};  ///< of the training loader, per rank
  std::optional<std::int64_t> accumulate_grad_batches = {};
  std::optional<double> gradient_clip_val = {};
  std::optional<deepspeed::Dtype> precision = {};
};

/// Fills what `config` leaves open, or says "auto" for, from `settings`: micro batch size (else 1, unless
/// train_batch_size gives it), accumulation, clipping (else off, as in Lightning), fp16 and bf16.
/// @throws ConfigError naming the key with its place, the Trainer's option and both values when they disagree
LOCKSTEP_API void complete(DeepSpeedConfig& config, const TrainerSettings& settings);

}  // namespace lockstep
