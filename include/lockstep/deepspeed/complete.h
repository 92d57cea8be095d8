// What whoever runs the training adds to a configuration, and its batch sizes: train_batch_size =
// train_micro_batch_size_per_gpu x gradient_accumulation_steps x ranks.
#pragma once

#include <cstdint>
#include <optional>

#include <lockstep/deepspeed/config.h>

namespace lockstep {

/// All three, each > 0.
struct DeepSpeedBatchSizes {
  std::int64_t train_batch_size = 0;                ///< samples of all ranks per optimizer step
  std::int64_t train_micro_batch_size_per_gpu = 0;  ///< samples of a rank per micro-batch
  std::int64_t gradient_accumulation_steps = 0;     ///< micro-batches per optimizer step

  bool operator==(const DeepSpeedBatchSizes&) const = default;
};

/// What DeepSpeed makes of those that `config` has, for `world_size` data-parallel ranks: with two of them
/// the third by division, with one of the batch sizes no accumulation. "auto" that nobody filled counts as
/// not given.
/// @throws ConfigError quoting the numbers and the ranks when neither batch size is given, one comes out as
/// 0, or the product does not hold
LOCKSTEP_API DeepSpeedBatchSizes resolve_batch_sizes(const DeepSpeedConfig& config, int world_size);

/// What a Trainer knows; nothing: not said there.
struct TrainerSettings {
  std::optional<std::int64_t> micro_batch_size = {};  ///< of the training loader, per rank
  std::optional<std::int64_t> accumulate_grad_batches =
      {};                                          ///< micro-batches per optimizer step; none: not said
  std::optional<double> gradient_clip_val = {};    ///< the greatest norm of gradients; none: not said
  std::optional<deepspeed::Dtype> precision = {};  ///< of parameters in forward; none: not said
};

/// Fills what `config` leaves open, or says "auto" for, from `settings`: micro batch size (else 1, unless
/// train_batch_size gives it), accumulation, clipping (else off, as in Lightning), fp16 and bf16.
/// @throws ConfigError naming the key with its place, the Trainer's option and both values when they disagree
LOCKSTEP_API void complete(DeepSpeedConfig& config, const TrainerSettings& settings);

}  // namespace lockstep
