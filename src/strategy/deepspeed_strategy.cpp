#include "strategy/deepspeed_strategy.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/precision/grad_scaler.h>
#include <lockstep/precision/precision.h>

#include "strategy/deepspeed_run.h"
#include "strategy/engine_table.h"

namespace lockstep::detail {
namespace {

using deepspeed::Dtype;

at::ScalarType scalar_type(Dtype dtype) {
  if (dtype == Dtype::kFp16) return at::kHalf;
  return dtype == Dtype::kBf16 ? at::kBFloat16 : at::kFloat;
}

WrapPolicy units_of(const deepspeed::LeafModule& leaves) {
  if (!leaves.names.empty() || !leaves.name_suffixes.empty())
    return WrapPolicy::modules(leaves.classes, leaves.names, leaves.name_suffixes);
  return leaves.classes.empty() ? WrapPolicy() : WrapPolicy::type_names(leaves.classes);
}

int shards_of(const deepspeed::ZeroConfig& zero, int world_size) {
  if (zero.stage == 0) return 1;
  return zero.mics_shard_size > 0 ? static_cast<int>(zero.mics_shard_size) : world_size;
}

// A bucket's gradients are reduced at a time, and its parameters gathered.
std::int64_t bucket_elements(const deepspeed::ZeroConfig& zero) {
  if (zero.stage == 0) return ShardingPlan::kNoLimit;
  const auto reduced = zero.reduce_bucket_size.value;
  return zero.stage == 3 ? reduced : std::min(reduced, zero.allgather_bucket_size);
}

// Stages 1 and 2 hold parameters from step to step, stage 3 what its limits leave room for.
void set_residency(ShardingPlan& plan, const deepspeed::ZeroConfig& zero) {
  plan.keep = zero.stage == 3 ? KeepGathered::kWhileUsed : KeepGathered::kUntilStep;
  plan.most_bucket_elements = bucket_elements(zero);
  if (zero.stage != 3) return;
  plan.max_live_elements =
      std::min(zero.stage3_max_live_parameters.value, zero.stage3_max_reuse_distance.value);
  plan.persistent_elements = zero.stage3_param_persistence_threshold.value;
  plan.most_persistent_elements = zero.stage3_model_persistence_threshold;
  plan.most_prefetched_elements = zero.stage3_prefetch_bucket_size.value;
}

void require_one_directory(const DeepSpeedConfig& config) {
  const auto& zero = config.zero_optimization;
  if (zero.offload_param.nvme_path == zero.offload_optimizer.nvme_path) return;
  throw ConfigError("deepspeed",
                    {.what = config.named("zero_optimization.offload_param.nvme_path") + " and " +
                             config.named("zero_optimization.offload_optimizer.nvme_path") + " differ",
                     .expected = "one directory for both",
                     .got = zero.offload_param.nvme_path.value_or("").string() + " and " +
                            zero.offload_optimizer.nvme_path.value_or("").string()});
}

// What has no place on the CPU where that is the device of the ranks: it is there already.
bool offloads_to_host(const DeepSpeedConfig& config) {
  const auto& zero = config.zero_optimization;
  if (zero.stage == 0) return false;
  return zero.offload_optimizer.device == deepspeed::OffloadDevice::kCpu ||
         (zero.stage == 3 && zero.offload_param.device == deepspeed::OffloadDevice::kCpu);
}

std::optional<DiskOffload> offload_of(const DeepSpeedConfig& config) {
  const auto& zero = config.zero_optimization;
  const bool parameters = zero.offload_param.device == deepspeed::OffloadDevice::kNvme && zero.stage == 3;
  const bool optimizer = zero.offload_optimizer.device == deepspeed::OffloadDevice::kNvme;
  if (zero.stage == 0 || (!parameters && !optimizer)) return std::nullopt;
  if (parameters && optimizer) require_one_directory(config);
  constexpr std::int64_t kLargestTile = 1 << 20;
  return DiskOffload{
      .directory = (optimizer ? zero.offload_optimizer.nvme_path : zero.offload_param.nvme_path).value_or(""),
      .option = "nvme_path",
      .parameters = parameters,
      .optimizer = optimizer,
      .optimizer_share = zero.offload_optimizer.ratio,
      .tile_elements = std::min(zero.sub_group_size, kLargestTile),
      .buffers = static_cast<std::size_t>(std::max<std::int64_t>(zero.offload_optimizer.buffer_count - 1, 1)),
      .block_size = config.aio.block_size,
      .queue_depth = config.aio.queue_depth,
      .single_submit = config.aio.single_submit,
      .overlap_events = config.aio.overlap_events};
}

// As many as there are, at most.
int secondary_shards_of(const DeepSpeedConfig& config, int world_size) {
  const auto asked = config.zero_optimization.zero_hpz_partition_size;
  const auto shards = static_cast<int>(std::clamp<std::int64_t>(asked, 1, world_size));
  if (world_size % shards == 0) return shards;
  throw ConfigError("deepspeed",
                    {.what = config.named("zero_optimization.zero_hpz_partition_size") + " does not fit",
                     .expected = "a number that divides " + std::to_string(world_size) + " ranks",
                     .got = std::to_string(asked)});
}

std::optional<ErrorFeedback> error_feedback_of(const DeepSpeedConfig& config) {
  if (!config.is_given("zero_optimization.zeropp_loco_param")) return std::nullopt;
  const auto& loco = config.zero_optimization.zeropp_loco_param;
  return ErrorFeedback{.decay = loco.err_beta, .reset_every = loco.reset_T};
}

// Gradients are summed inside of a node first: among those who share a secondary copy, if any do.
int gradient_neighbours(int secondary_shards, int world_size, int ranks_per_node) {
  if (secondary_shards > 1) return secondary_shards;
  return ranks_per_node > 0 && world_size % ranks_per_node == 0 ? ranks_per_node : 1;
}

// Below stage 3 DeepSpeed reads none of it, nor here.
ZeroPlusPlus zero_plus_plus_of(const DeepSpeedConfig& config, int world_size, int ranks_per_node) {
  const auto& zero = config.zero_optimization;
  if (zero.stage < 3) return {};
  const auto secondary = secondary_shards_of(config, world_size);
  return {.secondary_shards = secondary,
          .quantized_weights = zero.zero_quantized_weights,
          .quantized_frozen_weights = zero.zero_quantized_nontrainable_weights,
          .quantized_gradients = zero.zero_quantized_gradients,
          .gradient_neighbours =
              zero.zero_quantized_gradients ? gradient_neighbours(secondary, world_size, ranks_per_node) : 1,
          .error_feedback = error_feedback_of(config)};
}

}  // namespace

GradScalerOptions constant_scale(double scale) { return {.init_scale = scale, .dynamic = false}; }

GradScalerOptions scaler_options(const deepspeed::Fp16& fp16, int stage) {
  if (fp16.loss_scale > 0) return constant_scale(fp16.loss_scale);
  GradScalerOptions options{.init_scale = std::ldexp(1.0, fp16.initial_scale_power),
                            .growth_interval = fp16.loss_scale_window,
                            .hysteresis = fp16.hysteresis,
                            .consecutive_hysteresis = fp16.consecutive_hysteresis,
                            .growth_delay = 1,
                            .min_scale = static_cast<double>(fp16.min_loss_scale)};
  if (stage == 0) {
    options.hysteresis = 1;
    options.fails_at_min_scale = false;
  }
  return options;
}

bool checks_overflow(const DeepSpeedConfig& config, Dtype dtype) {
  const int stage = config.zero_optimization.stage;
  return dtype == Dtype::kBf16 && config.bf16.check_grad_overflow && (stage == 1 || stage == 2);
}

bool averages_every_micro_batch(const DeepSpeedConfig& config, Dtype dtype) {
  if (config.zero_optimization.stage >= 2) return true;
  const bool has_float_shards = dtype != Dtype::kFp32 && !config.bf16.bf16_master_weights_and_grads;
  return has_float_shards && config.data_types.grad_accum_dtype.value_or(Dtype::kFp32) == Dtype::kFp32;
}

ShardingPlan plan_of(const DeepSpeedConfig& config, Dtype dtype, int world_size, int ranks_per_node) {
  const auto& zero = config.zero_optimization;
  const auto compute = dtype == Dtype::kFp32 ? std::nullopt : std::optional(scalar_type(dtype));
  ShardingPlan plan{
      .shards = shards_of(zero, world_size),
      .units = units_of(zero.leaf_module),
      .mixed_precision = {.param_dtype = compute, .reduce_dtype = compute, .buffer_dtype = compute},
      .units_option = config.named("zero_optimization.leaf_module"),
      .shards_option = config.named("zero_optimization.mics_shard_size")};
  if (config.communication_data_type)
    plan.mixed_precision.reduce_dtype = scalar_type(*config.communication_data_type);
  const bool has_half_masters = dtype == Dtype::kBf16 && config.bf16.bf16_master_weights_and_grads;
  if (compute) plan.master_dtype = has_half_masters ? at::kBFloat16 : at::kFloat;
  if (!zero.overlap_comm.value_or(true)) {
    plan.forward_prefetch = false;
    plan.backward_prefetch = BackwardPrefetch::kNone;
  }
  set_residency(plan, zero);
  plan.offload = offload_of(config);
  plan.offload_to_host = !plan.offload && offloads_to_host(config);
  if (config.gradient_allreduce_op == deepspeed::AllreduceOp::kSum) plan.gradient_op = ReduceOp::kSum;
  plan.zero_plus_plus = zero_plus_plus_of(config, world_size, ranks_per_node);
  return plan;
}

}  // namespace lockstep::detail

namespace lockstep {

DeepSpeedStrategy::DeepSpeedStrategy(DeepSpeed options)
    : ShardedStrategy(options.state_dict_type),
      options_(std::move(options)),
      run_(detail::deepspeed_run(options_)) {}

void DeepSpeedStrategy::setup_environment(ClusterEnvironment& environment, const WorldShape& shape) {
  set_ranks(detail::join_ranks(options_, environment, shape), shape.devices);
  if (communicator().rank() != 0) return;
  for (const auto& warning : run_.warnings) log_warning(warning);
}

void DeepSpeedStrategy::set_precision(Precision& precision) {
  dtype_ = detail::dtype_of(precision);
  if (communicator().rank() == 0 && detail::adds_up_otherwise(run_.config, dtype_))
    log_warning(run_.config.named("data_types.grad_accum_dtype") + " has no effect yet");
  if (dtype_ == deepspeed::Dtype::kFp16 && precision.grad_scaler() != nullptr) {
    const auto fp16 = run_.is_from_file ? run_.config.fp16 : deepspeed_config(options_, dtype_).fp16;
    precision.set_grad_scaler(detail::scaler_options(fp16, run_.config.zero_optimization.stage));
  } else if (detail::checks_overflow(run_.config, dtype_)) {
    precision.set_grad_scaler(detail::constant_scale(1));
  }
}

void DeepSpeedStrategy::check_step(const Optimizer& optimizer) {
  ShardedStrategy::check_step(optimizer);
  if (detail::refuses_unused_parameters(run_.config))
    detail::require_all_used(run_.config, optimizer, trained_parameters(optimizer));
}

ShardingPlan DeepSpeedStrategy::plan(int world_size, int ranks_per_node) const {
  auto plan = detail::plan_of(run_.config, dtype_, world_size, ranks_per_node);
  plan.reduction = options_.reduction;
  return plan;
}

}  // namespace lockstep
