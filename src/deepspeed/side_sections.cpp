// Keys of fp16, bf16, data_types, torch_autocast and amp; of aio, activation_checkpointing, the profilers and
// monitors, and checkpoint.
#include <lockstep/deepspeed/side_sections.h>

#include <array>

namespace lockstep::deepspeed {

void describe(OptionVisitor& v, Fp16& o) {
  v.field("enabled", o.enabled, "Train in fp16");
  v.field("auto_cast", o.auto_cast, "Cast inputs to fp16");
  v.field("loss_scale", o.loss_scale, "Factor of the loss; 0: dynamic", at_least(0));
  v.field("initial_scale_power", o.initial_scale_power, "The first factor is 2 to this power",
          between(0, 127));  // larger ones are infinite in fp32
  v.field("loss_scale_window", o.loss_scale_window, "Steps without overflow before the factor doubles");
  v.field("hysteresis", o.hysteresis, "Overflows that are tolerated before the factor is halved",
          at_least(1));
  v.field("consecutive_hysteresis", o.consecutive_hysteresis,
          "Tolerate as many overflows again after each step without one");
  v.field("min_loss_scale", o.min_loss_scale, "Smallest factor");
  v.field("fp16_master_weights_and_grads", o.fp16_master_weights_and_grads,
          "No fp32 copy of weights; stages 1 to 3");
}

void describe(OptionVisitor& v, Bf16& o) {
  v.field("enabled", o.enabled, "Train in bf16");
  v.field("immediate_grad_update", o.immediate_grad_update,
          "Accumulate gradients in fp32 as they are computed");
  v.field("check_grad_overflow", o.check_grad_overflow,
          "Stages 1 and 2: skip steps whose gradients are not finite");
  v.field("bf16_master_weights_and_grads", o.bf16_master_weights_and_grads,
          "No fp32 copy of weights; stages 1 to 3");
  v.field("bf16_optimizer_states", o.bf16_optimizer_states,
          "Optimizer states in bf16; needs bf16_master_weights_and_grads");
}

void describe(OptionVisitor& v, DataTypes& o) {
  v.field("grad_accum_dtype", o.grad_accum_dtype, "Element type of gradients while they are accumulated");
  v.field("param_dtype", o.param_dtype, "Element type of parameters");
  v.field("buffer_dtype", o.buffer_dtype, "Element type of buffers");
}

void describe(OptionVisitor& v, TorchAutocast& o) {
  v.field("enabled", o.enabled, "Operators choose their type; the module is not cast");
  v.field("dtype", o.dtype, "The lower-precision element type");
  v.field("lower_precision_safe_modules", o.lower_precision_safe_modules,
          "Types of modules that may use the lower precision");
}

void describe(OptionVisitor& v, Amp& o) { v.field("enabled", o.enabled, "Apex's mixed precision"); }

std::span<const OptionName<Dtype>> option_names(Dtype) {
  static constexpr std::array<OptionName<Dtype>, 10> rows{{{"fp32", Dtype::kFp32},
                                                           {"fp16", Dtype::kFp16},
                                                           {"bf16", Dtype::kBf16},
                                                           {"float32", Dtype::kFp32},
                                                           {"float", Dtype::kFp32},
                                                           {"float16", Dtype::kFp16},
                                                           {"half", Dtype::kFp16},
                                                           {"bfloat16", Dtype::kBf16},
                                                           {"torch.float16", Dtype::kFp16},
                                                           {"torch.bfloat16", Dtype::kBf16}}};
  return rows;
}

void describe(OptionVisitor& v, Aio& o) {
  v.field("block_size", o.block_size, "Bytes of one access to the disk");
  v.field("queue_depth", o.queue_depth, "Accesses in progress at a time");
  v.field("intra_op_parallelism", o.intra_op_parallelism, "Threads of one transfer");
  v.field("single_submit", o.single_submit, "Submit accesses one by one");
  v.field("overlap_events", o.overlap_events, "Submit accesses while others complete");
  v.field("use_gds", o.use_gds, "Transfer between disk and GPU directly");
}

void describe(OptionVisitor& v, ActivationCheckpointing& o) {
  v.field("partition_activations", o.partition_activations,
          "Shard stored activations over model-parallel ranks");
  v.field("cpu_checkpointing", o.cpu_checkpointing, "Store activations on the CPU");
  v.field("contiguous_memory_optimization", o.contiguous_memory_optimization,
          "Store activations in contiguous memory");
  v.field("number_checkpoints", o.number_checkpoints, "Number of segments that are checkpointed");
  v.field("synchronize_checkpoint_boundary", o.synchronize_checkpoint_boundary,
          "Wait for the device at each segment");
  v.field("profile", o.profile, "Measure each segment");
}

void describe(OptionVisitor& v, FlopsProfiler& o) {
  v.field("enabled", o.enabled, "Count operations; turns wall_clock_breakdown on");
  v.field("recompute_fwd_factor", o.recompute_fwd_factor, "Share of forward that backward repeats");
  v.field("profile_step", o.profile_step, "Steps before the one that is measured; below 0: none is");
  v.field("module_depth", o.module_depth, "Levels of modules that are shown; -1: all");
  v.field("top_modules", o.top_modules, "Modules shown for each level; 0: none");
  v.field("detailed", o.detailed, "Show each module");
  v.field("output_file", o.output_file, "File instead of standard output");
}

void describe(OptionVisitor& v, Monitor& o) {
  v.field("enabled", o.enabled, "Write metrics");
  v.field("output_path", o.output_path, "Folder; empty: the working directory");
  v.field("job_name", o.job_name, "Name of the folder in output_path");
}

void describe(OptionVisitor& v, CommsLogger& o) {
  v.field("enabled", o.enabled, "Measure collectives");
  v.field("verbose", o.verbose, "Print each collective when it is done");
  v.field("prof_all", o.prof_all, "Measure all collectives");
  v.field("debug", o.debug, "Name the function that called the collective");
  v.field("prof_ops", o.prof_ops, "Collectives that are measured without prof_all");
}

void describe(OptionVisitor& v, ThroughputTimer& o) {
  v.field("enabled", o.enabled, "Measure samples per second");
  v.field("synchronized", o.synchronized, "Wait for the device before reading the clock");
}

void describe(OptionVisitor& v, Timers& o) { v.group("throughput", o.throughput, "Samples per second"); }

void describe(OptionVisitor& v, CheckpointWriter& o) {
  v.field("type", o.type, "How files are written");
  v.field("decoupled", o.decoupled, "Write in the background of training");
  v.field("io_buffer_size", o.io_buffer_size, "Bytes of a buffer", at_least(1));
  v.field("io_buffer_double", o.io_buffer_double, "Use two buffers");
  v.field("show_statistics", o.show_statistics, "Report how fast files were written");
  v.field("data_parallel", o.data_parallel, "Which of the replicas write");
  v.field("io_multiplier", o.io_multiplier, "Writers per replica", at_least(1));
}

void describe(OptionVisitor& v, ParallelWrite& o) {
  v.field("pipeline_stage", o.pipeline_stage, "Ranks of a pipeline stage write in parallel");
}

void describe(OptionVisitor& v, CheckpointConfig& o) {
  v.field("tag_validation", o.tag_validation, "What happens when ranks save under different tags");
  v.field("load_universal", o.load_universal, "Load a universal checkpoint");
  v.field("use_node_local_storage", o.use_node_local_storage, "Each node has its own folder");
  v.group("parallel_write", o.parallel_write, "Writing by several ranks");
  v.field("checkpoint_serialization", o.checkpoint_serialization, "Write tensors by torch.save");
  v.group("writer", o.writer, "How files are written");
}

std::span<const OptionName<TagValidation>> option_names(TagValidation) {
  static constexpr std::array<OptionName<TagValidation>, 3> rows{
      {{"Warn", TagValidation::kWarn}, {"Ignore", TagValidation::kIgnore}, {"Fail", TagValidation::kFail}}};
  return rows;
}

std::span<const OptionName<CheckpointWriterType>> option_names(CheckpointWriterType) {
  static constexpr std::array<OptionName<CheckpointWriterType>, 3> rows{
      {{"fast", CheckpointWriterType::kFast},
       {"python", CheckpointWriterType::kPython},
       {"mock", CheckpointWriterType::kMock}}};
  return rows;
}

std::span<const OptionName<WriterUnit>> option_names(WriterUnit) {
  static constexpr std::array<OptionName<WriterUnit>, 3> rows{{{"replica", WriterUnit::kReplica},
                                                               {"socket", WriterUnit::kSocket},
                                                               {"machine", WriterUnit::kMachine}}};
  return rows;
}

}  // namespace lockstep::deepspeed
