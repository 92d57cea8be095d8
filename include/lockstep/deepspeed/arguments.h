// DeepSpeed without a file: the arguments of Lightning's DeepSpeedStrategy, and what a Trainer adds to
// either.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include <lockstep/deepspeed/config.h>

namespace lockstep {

/// Arguments of Lightning's DeepSpeedStrategy that become JSON, with Lightning's defaults, which are not
/// always DeepSpeed's. Sizes count elements.
struct DeepSpeedArguments {
  bool zero_optimization = true;  ///< false: no section of that name
  int stage = 2;
  bool offload_optimizer = false;
  bool offload_parameters = false;
  deepspeed::OffloadDevice offload_optimizer_device = deepspeed::OffloadDevice::kCpu;
  deepspeed::OffloadDevice offload_params_device = deepspeed::OffloadDevice::kCpu;
  std::filesystem::path nvme_path = "/local_nvme";
  std::int64_t params_buffer_count = 5;
  std::int64_t params_buffer_size = 100'000'000;
  std::int64_t max_in_cpu = 1'000'000'000;
  std::int64_t optimizer_buffer_count = 4;
  bool pin_memory = false;
  std::int64_t block_size = 1'048'576;  ///< bytes
  std::int64_t queue_depth = 8;
  bool single_submit = false;
  bool overlap_events = true;
  std::int64_t thread_count = 1;
  std::int64_t sub_group_size = 1'000'000'000'000;
  bool contiguous_gradients = true;
  bool overlap_comm = true;
  bool allgather_partitions = true;
  bool reduce_scatter = true;
  std::int64_t allgather_bucket_size = 200'000'000;
  std::int64_t reduce_bucket_size = 200'000'000;
  bool zero_allow_untested_optimizer = true;
  bool partition_activations = false;
  bool cpu_checkpointing = false;
  bool contiguous_memory_optimization = false;
  bool synchronize_checkpoint_boundary = false;
  double loss_scale = 0.0;  ///< 0: dynamic
  int initial_scale_power = 16;
  std::int64_t loss_scale_window = 1000;
  int hysteresis = 2;
  std::int64_t min_loss_scale = 1;
};

LOCKSTEP_API void describe(OptionVisitor& v, DeepSpeedArguments& o);

/// The configuration that Lightning writes for `arguments` under a precision: 16-* is kFp16, which takes the
/// arguments about loss scales, bf16-* is kBf16. Batch sizes and clipping are left to complete().
/// @throws ConfigError as validate() does
LOCKSTEP_API DeepSpeedConfig deepspeed_config(const DeepSpeedArguments& arguments,
                                              deepspeed::Dtype precision);

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
