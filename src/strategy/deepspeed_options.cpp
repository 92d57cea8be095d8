// Keys of Lightning's DeepSpeedStrategy, and the JSON that it makes of them.
#include <lockstep/parallel/joining_options.h>
#include <lockstep/strategy/deepspeed.h>

namespace lockstep {
namespace {

void describe_offloading(OptionVisitor& v, DeepSpeed& o) {
  v.field("offload_optimizer", o.offload_optimizer, "Keep and step optimizer states outside the device");
  v.field("offload_parameters", o.offload_parameters, "Keep parameters outside the device (stage 3)");
  v.field("offload_optimizer_device", o.offload_optimizer_device, "Where optimizer states go");
  v.field("offload_params_device", o.offload_params_device, "Where parameters go");
  v.field("nvme_path", o.nvme_path, "Folder on the disk, for device nvme");
  v.field("params_buffer_count", o.params_buffer_count, "Buffers for parameters on disk", at_least(0));
  v.field("params_buffer_size", o.params_buffer_size, "Elements of such a buffer", at_least(0));
  v.field("max_in_cpu", o.max_in_cpu, "Parameters kept in memory in spite of the disk", at_least(0));
  v.field("optimizer_buffer_count", o.optimizer_buffer_count, "Buffers for optimizer states on disk",
          at_least(0));
  v.field("pin_memory", o.pin_memory, "Page-locked memory");
  v.field("block_size", o.block_size, "Bytes of one access to the disk", at_least(1));
  v.field("queue_depth", o.queue_depth, "Accesses under way at a time", at_least(1));
  v.field("single_submit", o.single_submit, "Hand over accesses one by one");
  v.field("overlap_events", o.overlap_events, "Hand over while others complete");
  v.field("thread_count", o.thread_count, "Threads of one transfer", at_least(1));
}

void describe_sharding(OptionVisitor& v, DeepSpeed& o) {
  v.field("zero_optimization", o.zero_optimization, "Shard at all");
  v.field("stage", o.stage,
          "What is sharded: 0 nothing, 1 optimizer states, 2 and gradients, 3 and parameters", between(0, 3));
  v.field("sub_group_size", o.sub_group_size, "Elements of a part of the optimizer's step", at_least(0));
  v.field("contiguous_gradients", o.contiguous_gradients, "Copy gradients into a bucket as they come");
  v.field("overlap_comm", o.overlap_comm, "Gather ahead of use");
  v.field("allgather_partitions", o.allgather_partitions, "Has no effect, in DeepSpeed neither");
  v.field("reduce_scatter", o.reduce_scatter, "Give each rank the sum of its own gradients only");
  v.field("allgather_bucket_size", o.allgather_bucket_size, "Elements gathered at a time, even", at_least(0));
  v.field("reduce_bucket_size", o.reduce_bucket_size, "Elements reduced at a time", at_least(0));
  v.field("zero_allow_untested_optimizer", o.zero_allow_untested_optimizer,
          "Accept optimizers that DeepSpeed does not test with ZeRO");
}

void describe_activations(OptionVisitor& v, DeepSpeed& o) {
  v.field("partition_activations", o.partition_activations,
          "Shard kept activations over model parallel ranks");
  v.field("cpu_checkpointing", o.cpu_checkpointing, "Keep checkpointed activations on the CPU");
  v.field("contiguous_memory_optimization", o.contiguous_memory_optimization,
          "Keep checkpointed activations side by side");
  v.field("synchronize_checkpoint_boundary", o.synchronize_checkpoint_boundary,
          "Wait for the device at each checkpointed piece");
}

void describe_loss_scale(OptionVisitor& v, DeepSpeed& o) {
  v.field("loss_scale", o.loss_scale, "Factor of the loss in fp16; 0: found while training", at_least(0));
  v.field("initial_scale_power", o.initial_scale_power, "The first factor is 2 to this power",
          between(0, 127));
  v.field("loss_scale_window", o.loss_scale_window, "Steps without overflow before the factor doubles",
          at_least(1));
  v.field("hysteresis", o.hysteresis, "Overflows put up with before the factor is halved", at_least(1));
  v.field("min_loss_scale", o.min_loss_scale, "Smallest factor", at_least(1));
}

void describe_auto(OptionVisitor& v, DeepSpeed& o) {
  v.field("learning_rate", o.learning_rate, "For \"auto\" in the file at optimizer.params.lr", at_least(0));
  v.field("warmup_steps", o.warmup_steps, "For \"auto\" in the file at scheduler.params.warmup_num_steps",
          at_least(0));
  v.field("warmup_ratio", o.warmup_ratio, "The same, as a share of the run's steps", between(0, 1));
}

deepspeed::OffloadOptimizer offload_optimizer(const DeepSpeed& a) {
  if (!a.offload_optimizer) return {};
  return {.device = a.offload_optimizer_device,
          .nvme_path = a.nvme_path,
          .buffer_count = a.optimizer_buffer_count,
          .pin_memory = a.pin_memory};
}

deepspeed::OffloadParam offload_param(const DeepSpeed& a) {
  if (!a.offload_parameters) return {};
  return {.device = a.offload_params_device,
          .nvme_path = a.nvme_path,
          .buffer_count = a.params_buffer_count,
          .buffer_size = a.params_buffer_size,
          .max_in_cpu = a.max_in_cpu,
          .pin_memory = a.pin_memory};
}

deepspeed::ZeroConfig zero_config(const DeepSpeed& a) {
  deepspeed::ZeroConfig zero;
  if (!a.zero_optimization) return zero;
  zero.stage = a.stage;
  zero.contiguous_gradients = a.contiguous_gradients;
  zero.overlap_comm = a.overlap_comm;
  zero.allgather_partitions = a.allgather_partitions;
  zero.reduce_scatter = a.reduce_scatter;
  zero.allgather_bucket_size = a.allgather_bucket_size;
  zero.reduce_bucket_size = a.reduce_bucket_size;
  zero.sub_group_size = a.sub_group_size;
  zero.offload_optimizer = offload_optimizer(a);
  zero.offload_param = offload_param(a);
  return zero;
}

deepspeed::Fp16 fp16_config(const DeepSpeed& a) {
  return {.enabled = true,
          .loss_scale = a.loss_scale,
          .initial_scale_power = a.initial_scale_power,
          .loss_scale_window = a.loss_scale_window,
          .hysteresis = a.hysteresis,
          .min_loss_scale = a.min_loss_scale};
}

void check_ranges(const DeepSpeed& arguments) {
  auto copy = arguments;
  OptionTree tree;
  tree.add("deepspeed", copy);
  tree.validate();
}

}  // namespace

void describe(OptionVisitor& v, DeepSpeed& o) {
  v.field("config", o.config,
          "A file of DeepSpeed's JSON, which then says all that the arguments here could");
  describe_sharding(v, o);
  describe_offloading(v, o);
  describe_activations(v, o);
  describe_loss_scale(v, o);
  v.field("state_dict_type", o.state_dict_type, "How checkpoints hold the model: whole, or in shards");
  describe_auto(v, o);
  detail::describe_joining(v, o);
}

DeepSpeedConfig deepspeed_config(const DeepSpeed& arguments, deepspeed::Dtype precision) {
  check_ranges(arguments);
  DeepSpeedConfig config{.gradient_clipping = 0.0,
                         .zero_allow_untested_optimizer = arguments.zero_allow_untested_optimizer};
  config.zero_optimization = zero_config(arguments);
  config.aio = {.block_size = arguments.block_size,
                .queue_depth = arguments.queue_depth,
                .intra_op_parallelism = arguments.thread_count,
                .single_submit = arguments.single_submit,
                .overlap_events = arguments.overlap_events};
  config.activation_checkpointing = {
      .partition_activations = arguments.partition_activations,
      .cpu_checkpointing = arguments.cpu_checkpointing,
      .contiguous_memory_optimization = arguments.contiguous_memory_optimization,
      .synchronize_checkpoint_boundary = arguments.synchronize_checkpoint_boundary};
  if (precision == deepspeed::Dtype::kFp16) config.fp16 = fp16_config(arguments);
  if (precision == deepspeed::Dtype::kBf16) config.bf16.enabled = true;
  validate(config);
  return config;
}

}  // namespace lockstep
