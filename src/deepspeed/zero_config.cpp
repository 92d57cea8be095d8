// Keys of zero_optimization.
#include <lockstep/deepspeed/zero_config.h>

#include <array>

namespace lockstep::deepspeed {
namespace {

void describe_gradients(OptionVisitor& v, ZeroConfig& o) {
  v.field("contiguous_gradients", o.contiguous_gradients,
          "Copy gradients into a bucket as they are computed");
  v.field("reduce_scatter", o.reduce_scatter,
          "Reduce-scatter gradients: each rank gets the sum of its shard only");
  v.field("reduce_bucket_size", o.reduce_bucket_size, "Elements reduced at a time", at_least(1));
  v.field("use_multi_rank_bucket_allreduce", o.use_multi_rank_bucket_allreduce,
          "Reduce a bucket of several ranks' gradients at once");
  v.field("allgather_partitions", o.allgather_partitions, "Has no effect, nor does it in DeepSpeed");
  v.field("allgather_bucket_size", o.allgather_bucket_size, "Elements gathered at a time, even", at_least(0));
  v.field("overlap_comm", o.overlap_comm, "Gather ahead of use; none: yes, at every stage");
  v.field("round_robin_gradients", o.round_robin_gradients, "Spread offloaded gradients over the ranks");
  v.field("ignore_unused_parameters", o.ignore_unused_parameters,
          "Stage 2: allow parameters without a gradient");
  v.field("compute_grad_norm", o.compute_grad_norm, "Stages 1 and 2: false where the norm is not needed");
  v.field("parameter_alignment", o.parameter_alignment, "Stages 1 and 2: start each parameter at 16 bytes");
}

void describe_stage3(OptionVisitor& v, ZeroConfig& o) {
  v.field("sub_group_size", o.sub_group_size, "Elements of a part of the optimizer's step", at_least(0));
  v.field("stage3_prefetch_bucket_size", o.stage3_prefetch_bucket_size, "Elements gathered ahead",
          at_least(0));
  v.field("stage3_param_persistence_threshold", o.stage3_param_persistence_threshold,
          "Parameters of so many elements or fewer stay gathered", at_least(0));
  v.field("stage3_model_persistence_threshold", o.stage3_model_persistence_threshold,
          "Elements that may stay gathered in all", at_least(0));
  v.field("stage3_max_live_parameters", o.stage3_max_live_parameters, "Elements gathered at a time",
          at_least(0));
  v.field("stage3_max_reuse_distance", o.stage3_max_reuse_distance,
          "Parameters that are used again within so many elements stay gathered", at_least(0));
  v.field("stage3_gather_16bit_weights_on_model_save", o.stage3_gather_16bit_weights_on_model_save,
          "Gather the weights when the model is saved");
  v.field("stage3_module_granularity_threshold", o.stage3_module_granularity_threshold,
          "Modules with fewer elements per descendant are gathered as one");
  v.field("stage3_use_all_reduce_for_fetch_params", o.stage3_use_all_reduce_for_fetch_params,
          "Gather by an all-reduce");
  v.field("stage3_allgather_sequential", o.stage3_allgather_sequential, "Gather parameters one by one");
  v.field("memory_efficient_linear", o.memory_efficient_linear,
          "Linear layers do not save gathered weights for backward");
  v.field("override_module_apply", o.override_module_apply, "Gather parameters for Module::apply");
  v.group("leaf_module", o.leaf_module, "Modules that are gathered as one unit");
}

void describe_plus_plus(OptionVisitor& v, ZeroConfig& o) {
  v.field("zero_hpz_partition_size", o.zero_hpz_partition_size, "ZeRO++: ranks of a secondary shard",
          at_least(0));
  v.field("zero_quantized_weights", o.zero_quantized_weights, "ZeRO++: gather weights as 8 bits");
  v.field("zero_quantized_nontrainable_weights", o.zero_quantized_nontrainable_weights,
          "ZeRO++: gather frozen weights as 8 bits");
  v.field("zero_quantized_gradients", o.zero_quantized_gradients, "ZeRO++: reduce gradients as 4 bits");
  v.group("zeropp_loco_param", o.zeropp_loco_param, "ZeRO++: error feedback");
  v.field("mics_shard_size", o.mics_shard_size, "MiCS: ranks of a shard group; -1: off");
  v.field("mics_hierarchical_params_gather", o.mics_hierarchical_params_gather, "MiCS: gather in two levels");
}

void describe_rest(OptionVisitor& v, ZeroConfig& o) {
  v.field("load_from_fp32_weights", o.load_from_fp32_weights, "Resume from fp32 weights");
  v.field("elastic_checkpoint", o.elastic_checkpoint, "Checkpoints always load at any number of ranks");
  v.field("legacy_stage1", o.legacy_stage1, "No longer exists: only false");
  v.field("pipeline_loading_checkpoint", o.pipeline_loading_checkpoint, "Load checkpoints in a pipeline");
  v.field("log_trace_cache_warnings", o.log_trace_cache_warnings, "Warn when the order of modules changes");
  v.field("enable_sanity_checks", o.enable_sanity_checks, "Check internal states");
  v.field("save_muon_momentum_buffer_in_memory", o.save_muon_momentum_buffer_in_memory,
          "Hold Muon's momentum in memory when states are on disk");
}

}  // namespace

void describe(OptionVisitor& v, OffloadParam& o) {
  v.field("device", o.device, "Where parameters are stored between uses");
  v.field("nvme_path", o.nvme_path, "Folder on the disk");
  v.field("buffer_count", o.buffer_count, "Buffers for the disk", at_least(0));
  v.field("buffer_size", o.buffer_size, "Elements of a buffer", at_least(0));
  v.field("max_in_cpu", o.max_in_cpu, "Elements that stay in memory when parameters are on disk",
          at_least(0));
  v.field("pin_memory", o.pin_memory, "Page-locked memory");
}

void describe(OptionVisitor& v, OffloadOptimizer& o) {
  v.field("device", o.device, "Where optimizer states are stored and updated");
  v.field("nvme_path", o.nvme_path, "Folder on the disk");
  v.field("buffer_count", o.buffer_count, "Buffers for the disk", at_least(0));
  v.field("pin_memory", o.pin_memory, "Page-locked memory");
  v.field("pipeline_read", o.pipeline_read, "Read the next part during the step");
  v.field("pipeline_write", o.pipeline_write, "Write the part before during the step");
  v.field("fast_init", o.fast_init, "Start faster with the disk");
  v.field("ratio", o.ratio, "Share of the step that is on the CPU; below 1 at stage 3 only", between(0, 1));
  v.field("super_offload", o.super_offload, "For CPU and GPU on one chip");
  v.field("cpuadam_cores_perc", o.cpuadam_cores_perc, "Share of the cores for super_offload", between(0, 1));
}

void describe(OptionVisitor& v, LocoParam& o) {
  v.field("err_beta", o.err_beta, "Weight of the error's moving average", between(0, 1));
  v.field("reset_T", o.reset_T, "Steps after which the error is cleared", at_least(1));
}

void describe(OptionVisitor& v, LeafModule& o) {
  v.field("classes", o.classes, "Types of modules");
  v.field("names", o.names, "Names of modules");
  v.field("name_suffixes", o.name_suffixes, "Ends of names of modules");
}

void describe(OptionVisitor& v, ZeroConfig& o) {
  v.field("stage", o.stage,
          "What is sharded: 0 nothing, 1 optimizer states, 2 and gradients, 3 and parameters", between(0, 3));
  v.group("offload_param", o.offload_param, "Parameters outside the device");
  v.group("offload_optimizer", o.offload_optimizer, "Optimizer states outside the device");
  describe_gradients(v, o);
  describe_stage3(v, o);
  describe_plus_plus(v, o);
  describe_rest(v, o);
}

std::span<const OptionName<OffloadDevice>> option_names(OffloadDevice) {
  static constexpr std::array<OptionName<OffloadDevice>, 3> rows{
      {{"none", OffloadDevice::kNone}, {"cpu", OffloadDevice::kCpu}, {"nvme", OffloadDevice::kNvme}}};
  return rows;
}

}  // namespace lockstep::deepspeed
