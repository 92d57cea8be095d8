// The options of Ddp and Fsdp by name and as text, and those by which their ranks join.
#include <array>
#include <utility>

#include <lockstep/parallel/ddp/ddp.h>
#include <lockstep/parallel/joining_options.h>
#include <lockstep/parallel/sharded/fsdp.h>

#include "base/format.h"
#include "comm/transport/transport.h"
#include "parallel/ddp/comm_hooks.h"

namespace lockstep {

std::span<const OptionName<StartMethod>> option_names(StartMethod) {
  static constexpr OptionName<StartMethod> kNames[] = {
      {"popen", StartMethod::kAuto}, {"fork", StartMethod::kFork}, {"spawn", StartMethod::kSpawn}};
  return kNames;
}

std::span<const OptionName<Reduction>> option_names(Reduction) {
  static constexpr OptionName<Reduction> kNames[] = {{"ordered", Reduction::kOrdered},
                                                     {"fast", Reduction::kFast}};
  return kNames;
}

const std::string& detail::backend_description() {
  static const auto text = "What carries bytes between ranks: " + transport_names() +
                           "; auto: sockets; nccl: sockets, and NCCL between CUDA devices";
  return text;
}

std::span<const OptionName<DdpCommHook>> option_names(DdpCommHook) {
  static constexpr OptionName<DdpCommHook> kNames[] = {{"allreduce", DdpCommHook::kAllreduce},
                                                       {"fp16_compress", DdpCommHook::kFp16Compress},
                                                       {"bf16_compress", DdpCommHook::kBf16Compress},
                                                       {"powerSGD", DdpCommHook::kPowerSgd},
                                                       {"noop", DdpCommHook::kNoop}};
  return kNames;
}

std::span<const OptionName<DdpCommWrapper>> option_names(DdpCommWrapper) {
  static constexpr OptionName<DdpCommWrapper> kNames[] = {{"none", DdpCommWrapper::kNone},
                                                          {"fp16_compress", DdpCommWrapper::kFp16Compress},
                                                          {"bf16_compress", DdpCommWrapper::kBf16Compress}};
  return kNames;
}

void describe(OptionVisitor& v, Ddp& o) {
  v.field("bucket_cap_mb", o.bucket_cap_mb, "MiB of gradients that are reduced at once", more_than(0));
  v.field("find_unused_parameters", o.find_unused_parameters, "Allow losses that leave out parameters");
  v.field("static_graph", o.static_graph, "Promise that every step has the graph of the first");
  v.field("gradient_as_bucket_view", o.gradient_as_bucket_view,
          "Let gradients be views of the buckets: saves a copy");
  v.field("reduce_every_micro_batch", o.reduce_every_micro_batch,
          "Average gradients in every backward of a window, as ZeRO does, not in the last one only");
  v.field("broadcast_buffers", o.broadcast_buffers, "Let buffers follow those of rank 0 after every step");
  v.field("init_sync", o.init_sync, "Compare the ranks' modules at setup and make them equal to rank 0's");
  v.field("skip_all_reduce_unused_params", o.skip_all_reduce_unused_params,
          "With find_unused_parameters: leave out buckets that no rank uses");
  v.field("ddp_comm_hook", o.ddp_comm_hook, "How gradients travel");
  v.field("ddp_comm_wrapper", o.ddp_comm_wrapper, "The dtype that the comm hook works on");
  v.group("ddp_comm_state", o.ddp_comm_state, "options of ddp_comm_hook powerSGD");
  detail::describe_joining(v, o);
}

namespace {

using Dtype = std::optional<at::ScalarType>;

constexpr std::pair<std::string_view, at::ScalarType> kDtypeNames[] = {
    {"float32", at::kFloat}, {"fp32", at::kFloat}, {"bfloat16", at::kBFloat16}, {"bf16", at::kBFloat16},
    {"float16", at::kHalf},  {"fp16", at::kHalf},  {"half", at::kHalf},         {"float64", at::kDouble}};

Dtype dtype_named(std::string_view name) {
  for (const auto& [known, dtype] : kDtypeNames) {
    if (detail::same_name(known, name)) return dtype;
  }
  return std::nullopt;
}

std::string name_of_dtype(at::ScalarType dtype) {
  for (const auto& [name, known] : kDtypeNames) {
    if (known == dtype) return std::string(name);
  }
  return "unknown";
}

// Sets the field that `entry`, "KEY: VALUE", names; false where it names none.
bool set_field(MixedPrecision& fields, std::string_view entry) {
  const auto colon = entry.find(':');
  if (colon == std::string_view::npos) return false;
  const auto key = detail::trimmed(entry.substr(0, colon));
  const auto value = detail::trimmed(entry.substr(colon + 1));
  const std::array<std::pair<std::string_view, bool*>, 2> switches{
      {{"keep_low_precision_grads", &fields.keep_low_precision_grads},
       {"cast_forward_inputs", &fields.cast_forward_inputs}}};
  for (const auto& [name, is_on] : switches) {
    if (name == key) *is_on = value == "true";
    if (name == key) return value == "true" || value == "false";
  }
  const std::array<std::pair<std::string_view, Dtype*>, 3> dtypes{{{"param_dtype", &fields.param_dtype},
                                                                   {"reduce_dtype", &fields.reduce_dtype},
                                                                   {"buffer_dtype", &fields.buffer_dtype}}};
  for (const auto& [name, dtype] : dtypes) {
    if (name == key) *dtype = dtype_named(value);
    if (name == key) return dtype->has_value();
  }
  return false;
}

std::optional<MixedPrecision> parse_map(std::string_view text) {
  MixedPrecision fields;
  text = text.substr(1, text.size() - 2);
  while (!detail::trimmed(text).empty()) {
    const auto comma = std::min(text.find(','), text.size());
    if (!set_field(fields, detail::trimmed(text.substr(0, comma)))) return std::nullopt;
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return fields;
}

}  // namespace

Expected<MixedPrecisionChoice> OptionType<MixedPrecisionChoice>::parse(std::string_view text) {
  if (detail::same_name(text, "none")) return MixedPrecisionChoice();
  if (const auto dtype = dtype_named(text)) return MixedPrecisionChoice(*dtype);
  if (text.size() >= 2 && text.front() == '{' && text.back() == '}') {
    if (const auto fields = parse_map(text)) return MixedPrecisionChoice(*fields);
  }
  return Unexpected{accepted()};
}

std::string OptionType<MixedPrecisionChoice>::print(const MixedPrecisionChoice& value) {
  if (value.is_none()) return "none";
  const auto& fields = value.value();
  std::string text;
  const auto add = [&](const char* key, const std::string& field) {
    text += (text.empty() ? "" : ", ") + std::string(key) + ": " + field;
  };
  if (fields.param_dtype) add("param_dtype", name_of_dtype(*fields.param_dtype));
  if (fields.reduce_dtype) add("reduce_dtype", name_of_dtype(*fields.reduce_dtype));
  if (fields.buffer_dtype) add("buffer_dtype", name_of_dtype(*fields.buffer_dtype));
  if (fields.keep_low_precision_grads) add("keep_low_precision_grads", "true");
  if (!fields.cast_forward_inputs) add("cast_forward_inputs", "false");
  return "{" + text + "}";
}

std::string OptionType<MixedPrecisionChoice>::accepted() {
  return "none, a type (float32, bfloat16, float16), or a map of param_dtype, reduce_dtype, buffer_dtype, "
         "keep_low_precision_grads and cast_forward_inputs";
}

std::span<const OptionName<ShardingStrategy>> option_names(ShardingStrategy) {
  static constexpr OptionName<ShardingStrategy> kNames[] = {
      {"FULL_SHARD", ShardingStrategy::kFullShard},
      {"SHARD_GRAD_OP", ShardingStrategy::kShardGradOp},
      {"NO_SHARD", ShardingStrategy::kNoShard},
      {"HYBRID_SHARD", ShardingStrategy::kHybridShard},
      {"_HYBRID_SHARD_ZERO2", ShardingStrategy::kHybridShardZero2},
      {"HYBRID_SHARD_ZERO2", ShardingStrategy::kHybridShardZero2}};
  return kNames;
}

std::span<const OptionName<BackwardPrefetch>> option_names(BackwardPrefetch) {
  static constexpr OptionName<BackwardPrefetch> kNames[] = {
      {"BACKWARD_PRE", BackwardPrefetch::kBackwardPre},
      {"BACKWARD_POST", BackwardPrefetch::kBackwardPost},
      {"none", BackwardPrefetch::kNone}};
  return kNames;
}

void describe(OptionVisitor& v, Fsdp& o) {
  v.field("sharding_strategy", o.sharding_strategy, "What is cut into shards, and over which ranks");
  v.field("device_mesh", o.device_mesh,
          "Of HYBRID_SHARD: number of copies, then of shards; by default nodes and devices");
  v.field("auto_wrap_policy", o.auto_wrap_policy, "Which modules become units, gathered as a whole");
  v.field("ignored_modules", o.ignored_modules, "Modules whose parameters every rank holds whole");
  v.field("activation_checkpointing", o.activation_checkpointing,
          "Modules that backward runs again instead of keeping what they computed; true: every unit");
  v.field("activation_offload", o.activation_offload,
          "Keep what forward saves for backward on the CPU or, if that computes, on disk");
  v.field("mixed_precision", o.mixed_precision, "Types to compute and communicate in, if others");
  v.field("cpu_offload", o.cpu_offload,
          "Keep parameters, gradients and optimizer state on the CPU or, if that computes, on disk");
  v.field("offload_dir", o.offload_dir,
          "Directory for what is kept on disk; by default that of temporary files");
  v.field("backward_prefetch", o.backward_prefetch, "When backward gathers the next unit");
  v.field("forward_prefetch", o.forward_prefetch, "Gather the next unit of forward ahead of its use");
  v.field("limit_all_gathers", o.limit_all_gathers, "Free what is not needed before more is gathered");
  v.field("release_after_every_operator", o.release_after_every_operator,
          "For tests: overwrite and free gathered memory as soon as an operator is done");
  v.field("sync_module_states", o.sync_module_states,
          "Compare the ranks' modules at setup and make them equal to rank 0's");
  v.field("broadcast_buffers", o.broadcast_buffers, "Let buffers follow those of rank 0 after every step");
  v.field("state_dict_type", o.state_dict_type, "How checkpoints hold the model: whole, or in shards");
  detail::describe_joining(v, o);
}

}  // namespace lockstep
