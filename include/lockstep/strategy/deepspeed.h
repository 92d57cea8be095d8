// DeepSpeed's stages as a strategy: the arguments of Lightning's DeepSpeedStrategy.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>
#include <lockstep/base/options.h>
#include <lockstep/cluster/detect.h>
#include <lockstep/comm/reduce_op.h>
#include <lockstep/deepspeed/config.h>
#include <lockstep/parallel/ddp/ddp.h>
#include <lockstep/state/module_state.h>

namespace lockstep {

/// ZeRO's stages: 1 shards the optimizer's state, 2 the gradients, too, 3 the parameters, too. Names and
/// defaults are those of Lightning's DeepSpeedStrategy, which are not always DeepSpeed's. Sizes count
/// elements.
struct DeepSpeed {
  std::filesystem::path config =
      {};  ///< a file of DeepSpeed's JSON; all that it could say is taken from it then,
           ///< and not from the arguments. Also LOCKSTEP_DEEPSPEED_CONFIG_PATH
  bool zero_optimization = true;  ///< false: no section of that name
  int stage = 2;
  bool offload_optimizer = false;
  bool offload_parameters = false;
  EnumOption<deepspeed::OffloadDevice> offload_optimizer_device = deepspeed::OffloadDevice::kCpu;
  EnumOption<deepspeed::OffloadDevice> offload_params_device = deepspeed::OffloadDevice::kCpu;
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
  EnumOption<StateDictType> state_dict_type =
      StateDictType::kSharded;               ///< how checkpoints hold the model: every rank
                                             ///< its shards, or gathered on rank 0
  std::optional<double> learning_rate = {};  ///< for an "auto" of the file at optimizer.params.lr
  std::int64_t warmup_steps = 0;  ///< for an "auto" of the file at scheduler.params.warmup_num_steps
  double warmup_ratio = 0.0;      ///< the same, as a share of the run's steps; warmup_steps goes before it
  std::chrono::milliseconds timeout = std::chrono::minutes(30);  ///< for joining and for each collective
  std::string process_group_backend = "auto";             ///< what carries the bytes: CommOptions::backend
  EnumOption<Reduction> reduction = Reduction::kOrdered;  ///< order of sums
  bool check_collectives = true;  ///< ranks compare what they call before each collective
  EnumOption<StartMethod> start_method = StartMethod::kAuto;  ///< how ranks come to be
  EnvironmentChoice cluster_environment = {};  ///< who told each rank its place; by default detected
};

LOCKSTEP_API void describe(OptionVisitor& visitor, DeepSpeed& options);

/// The configuration that Lightning writes for the arguments of `options` under a precision: 16-* is kFp16,
/// which takes those about loss scales, bf16-* is kBf16. Batch sizes and clipping are left to complete().
/// @throws ConfigError as validate() does
LOCKSTEP_API DeepSpeedConfig deepspeed_config(const DeepSpeed& options, deepspeed::Dtype precision);

}  // namespace lockstep
