// Top level of DeepSpeed's configuration.
#include <lockstep/deepspeed/config.h>

#include <array>

namespace lockstep {

namespace deepspeed {

std::span<const OptionName<AllreduceOp>> option_names(AllreduceOp) {
  static constexpr std::array<OptionName<AllreduceOp>, 2> rows{
      {{"mean", AllreduceOp::kMean}, {"sum", AllreduceOp::kSum}}};
  return rows;
}

namespace {

void describe_batches(OptionVisitor& v, DeepSpeedConfig& o) {
  v.field("train_batch_size", o.train_batch_size, "Samples of all ranks in an optimizer step", at_least(1));
  v.field("train_micro_batch_size_per_gpu", o.train_micro_batch_size_per_gpu,
          "Samples of one rank in one micro-batch", at_least(1));
  v.field("gradient_accumulation_steps", o.gradient_accumulation_steps, "Micro-batches in an optimizer step",
          at_least(1));
  v.field("managed_gradient_accumulation", o.managed_gradient_accumulation,
          "Count micro-batches; false: every step() is an optimizer step");
  v.field("dataloader_drop_last", o.dataloader_drop_last, "Drop the last batch when it is short");
}

void describe_gradients(OptionVisitor& v, DeepSpeedConfig& o) {
  v.field("gradient_clipping", o.gradient_clipping, "Largest norm of all gradients; 0: no clipping",
          at_least(0));
  v.field("prescale_gradients", o.prescale_gradients, "Divide gradients before they are summed");
  v.field("gradient_predivide_factor", o.gradient_predivide_factor,
          "Part of the division that is done before the sum");
  v.field("gradient_allreduce_op", o.gradient_allreduce_op, "How the gradients of the ranks are combined");
  v.field("communication_data_type", o.communication_data_type,
          "Element type of gradients that are sent; none: the model's");
  v.field("seq_parallel_communication_data_type", o.seq_parallel_communication_data_type,
          "Element type of what sequence parallelism sends");
  v.field("sparse_gradients", o.sparse_gradients, "Send only the rows of embeddings that were used");
  v.field("disable_allgather", o.disable_allgather, "Has no effect, nor does it in DeepSpeed");
}

void describe_reports(OptionVisitor& v, DeepSpeedConfig& o) {
  v.field("steps_per_print", o.steps_per_print, "Steps between lines of progress", at_least(1));
  v.field("wall_clock_breakdown", o.wall_clock_breakdown, "Print the times of forward, backward and step");
  v.field("memory_breakdown", o.memory_breakdown, "Print memory at points of a step");
  v.field("dump_state", o.dump_state, "Print the configuration at the start");
}

void describe_optimization(OptionVisitor& v, DeepSpeedConfig& o) {
  v.choice("optimizer", o.optimizer, optimizer_choices(), "The optimizer, instead of the program's");
  v.choice("scheduler", o.scheduler, scheduler_choices(), "Learning rates, instead of the program's");
  v.field("zero_allow_untested_optimizer", o.zero_allow_untested_optimizer,
          "Accept optimizers that DeepSpeed does not test with ZeRO");
  v.field("zero_force_ds_cpu_optimizer", o.zero_force_ds_cpu_optimizer,
          "Refuse torch's optimizers with offloading");
  v.group("fp16", o.fp16, "Training in fp16");
  v.group("bf16", o.bf16, "Training in bf16");
  v.group("amp", o.amp, "Apex's mixed precision");
  v.group("torch_autocast", o.torch_autocast, "Autocast instead of casting the module");
  v.group("data_types", o.data_types, "Element types");
  v.group("zero_optimization", o.zero_optimization, "What ZeRO shards and offloads");
  v.group("aio", o.aio, "Access to disks");
  v.group("activation_checkpointing", o.activation_checkpointing, "How checkpointed activations are stored");
}

void describe_tools(OptionVisitor& v, DeepSpeedConfig& o) {
  v.group("flops_profiler", o.flops_profiler, "Count of operations");
  v.group("tensorboard", o.tensorboard, "Metrics for TensorBoard");
  v.group("csv_monitor", o.csv_monitor, "Metrics as CSV");
  v.group("comms_logger", o.comms_logger, "Measurements of collectives");
  v.group("timers", o.timers, "Timers");
  v.group("checkpoint", o.checkpoint, "Checkpoints");
}

}  // namespace
}  // namespace deepspeed

void describe(OptionVisitor& v, DeepSpeedConfig& o) {
  deepspeed::describe_batches(v, o);
  deepspeed::describe_gradients(v, o);
  deepspeed::describe_reports(v, o);
  deepspeed::describe_optimization(v, o);
  deepspeed::describe_tools(v, o);
}

std::string DeepSpeedConfig::named(const std::string& key) const {
  const auto found = given.find(key);
  return found == given.end() ? key : key + " (" + found->second + ")";
}

}  // namespace lockstep
