#include <lockstep/parallel/sharded/sharding_plan.h>

#include <bit>
#include <string>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/parallel/sharded/fsdp.h>
#include <lockstep/torch.h>

#include "offload/swap_folder.h"
#include "parallel/module_states.h"

namespace lockstep::detail {
namespace {

const char* words_for(KeepGathered keep) {
  switch (keep) {
    case KeepGathered::kWhileUsed:
      return "while they are used";
    case KeepGathered::kUntilBackward:
      return "until backward";
    case KeepGathered::kUntilStep:
      return "until the step";
  }
  return "";
}

const char* words_for(bool is_on) { return is_on ? "true" : "false"; }

std::string text_of(std::optional<at::ScalarType> dtype) {
  return dtype ? c10::toString(*dtype) : "the model's own";
}

// Without the directory.
std::string text_of(const std::optional<DiskOffload>& offload) {
  if (!offload) return "none";
  return std::string(offload->parameters ? "parameters" : "") +
         (offload->parameters && offload->optimizer ? " and " : "") +
         (offload->optimizer ? "optimizer state" : "");
}

std::string text_of(const std::optional<ErrorFeedback>& feedback) {
  if (!feedback) return "none";
  return std::to_string(feedback->decay) + ", anew after " + std::to_string(feedback->reset_every);
}

}  // namespace

ShardingPlan placed_on(ShardingPlan plan, at::Device device) {
  plan.device = device;
  if (device.is_cpu())
    plan.offload_to_host = false;
  else if (plan.offload_to_host)
    plan.offload.reset();
  return plan;
}

std::vector<std::string> lines_of(const ShardingPlan& plan) {
  const auto& zero = plan.zero_plus_plus;
  const auto number = [](auto value) { return std::to_string(value); };
  return {
      "number of shards " + number(plan.shards),
      std::string("parameters that stay gathered ") + words_for(plan.keep),
      "auto_wrap_policy " + plan.units.print(),
      "ignored_modules " + (plan.whole_modules ? plan.whole_modules->print() : "none"),
      "activation_checkpointing " + OptionType<ActivationCheckpointing>::print(plan.activation_checkpointing),
      "mixed_precision " + OptionType<MixedPrecisionChoice>::print(plan.mixed_precision),
      "shards of type " + text_of(plan.master_dtype),
      "on disk " + text_of(plan.offload),
      std::string("on the host ") + words_for(plan.offload_to_host),
      std::string("release_after_every_operator ") + words_for(plan.release_after_every_operator),
      "live elements " + number(plan.max_live_elements),
      "persistent elements " + number(plan.persistent_elements) + ", " +
          number(plan.most_persistent_elements) + " of the model",
      "backward_prefetch " + OptionType<BackwardPrefetch>::print(plan.backward_prefetch),
      std::string("forward_prefetch ") + words_for(plan.forward_prefetch),
      "prefetched elements " + number(plan.most_prefetched_elements),
      "elements of a bucket " + number(plan.most_bucket_elements),
      std::string("limit_all_gathers ") + words_for(plan.limit_all_gathers),
      std::string("sync_module_states ") + words_for(plan.sync_module_states),
      std::string("broadcast_buffers ") + words_for(plan.broadcast_buffers),
      "gradients of all ranks " + std::string(plan.gradient_op == ReduceOp::kSum ? "added" : "averaged"),
      "secondary shards " + number(zero.secondary_shards),
      std::string("quantized weights ") + words_for(zero.quantized_weights) + ", frozen ones " +
          words_for(zero.quantized_frozen_weights),
      std::string("quantized gradients ") + words_for(zero.quantized_gradients) + ", " +
          number(zero.gradient_neighbours) + " neighbours, error feedback " + text_of(zero.error_feedback)};
}

void require_same_plan(const ShardingPlan& plan, const Communicator& comm) {
  require_equal_across_ranks(
      lines_of(plan), comm,
      {.what = "the ranks' options differ", .hint = "all ranks must shard a module by the same options"});
}

}  // namespace lockstep::detail

namespace lockstep {
namespace {

bool is_hybrid(ShardingStrategy strategy) {
  return strategy == ShardingStrategy::kHybridShard || strategy == ShardingStrategy::kHybridShardZero2;
}

std::string text_of(const std::vector<int>& mesh) {
  std::string text;
  for (const int size : mesh) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text;
}

constexpr const char* kMesh = "device_mesh";

[[noreturn]] void refuse_mesh(const std::string& expected, const std::string& got,
                              const std::string& option = kMesh) {
  throw ConfigError("parallel",
                    {.what = option + " does not fit",
                     .expected = expected,
                     .got = got,
                     .hint = option == kMesh ? "device_mesh: [copies, shards] of HYBRID_SHARD" : ""});
}

int shards_of_mesh(const Fsdp& options, int world_size) {
  const auto& mesh = options.device_mesh;
  const bool fits =
      mesh.size() == 2 && mesh[0] > 0 && mesh[1] > 0 && std::int64_t{mesh[0]} * mesh[1] == world_size;
  if (!fits) refuse_mesh("copies x shards = " + std::to_string(world_size) + " ranks", text_of(mesh));
  return mesh[1];
}

int count_shards(const Fsdp& options, int world_size, int ranks_per_node) {
  if (!is_hybrid(options.sharding_strategy)) {
    if (!options.device_mesh.empty())
      refuse_mesh("none, unless sharding_strategy is HYBRID_SHARD", text_of(options.device_mesh));
    return options.sharding_strategy == ShardingStrategy::kNoShard ? 1 : world_size;
  }
  if (!options.device_mesh.empty()) return shards_of_mesh(options, world_size);
  if (world_size % ranks_per_node != 0)
    refuse_mesh("as many ranks on every node",
                std::to_string(world_size) + " ranks, " + std::to_string(ranks_per_node) + " on this node");
  return ranks_per_node;
}

KeepGathered keep_of(ShardingStrategy strategy) {
  const bool until_backward =
      strategy == ShardingStrategy::kShardGradOp || strategy == ShardingStrategy::kHybridShardZero2;
  return until_backward ? KeepGathered::kUntilBackward : KeepGathered::kWhileUsed;
}

std::filesystem::path offload_directory(const Fsdp& options) {
  return options.offload_dir.empty() ? offload::temporary_directory("offload_dir") : options.offload_dir;
}

std::optional<DiskOffload> offload_of(const Fsdp& options) {
  if (!options.cpu_offload) return std::nullopt;
  return DiskOffload{.directory = offload_directory(options)};
}

std::optional<ActivationOffload> activation_offload_of(const Fsdp& options) {
  if (!options.activation_offload) return std::nullopt;
  return ActivationOffload{.directory = options.offload_dir, .option = "offload_dir"};
}

void check_neighbours(const char* what, int neighbours, int shards) {
  if (neighbours >= 1 && shards % neighbours == 0) return;
  throw ConfigError("parallel", {.what = std::string(what) + " does not fit",
                                 .expected = "a number that divides " + std::to_string(shards) + " shards",
                                 .got = std::to_string(neighbours)});
}

void check_zero_plus_plus(const ZeroPlusPlus& options, int shards, int world_size) {
  check_neighbours("zero_plus_plus.secondary_shards", options.secondary_shards, shards);
  check_neighbours("zero_plus_plus.gradient_neighbours", options.gradient_neighbours, shards);
  if (!options.quantized_gradients || shards == world_size) return;
  throw ConfigError("parallel",
                    {.what = "zero_plus_plus.quantized_gradients does not go with several copies",
                     .expected = "as many shards as ranks",
                     .got = std::to_string(shards) + " shards of " + std::to_string(world_size) + " ranks"});
}

bool has_16_bits(at::ScalarType dtype) { return dtype == at::kBFloat16 || dtype == at::kHalf; }

void check_mixed_precision(const MixedPrecision& mixed) {
  if (!mixed.keep_low_precision_grads || (mixed.param_dtype && has_16_bits(*mixed.param_dtype))) return;
  throw ConfigError(
      "parallel", {.what = "mixed_precision.keep_low_precision_grads keeps gradients in param_dtype",
                   .expected = "param_dtype bfloat16 or float16",
                   .got = mixed.param_dtype ? c10::toString(*mixed.param_dtype) : "none",
                   .hint = "precision bf16-mixed and 16-mixed set it; bf16-true has such gradients anyway"});
}

}  // namespace

ShardingPlan plan_of(const Fsdp& options, int world_size, int ranks_per_node) {
  return {.shards = count_shards(options, world_size, ranks_per_node),
          .keep = keep_of(options.sharding_strategy),
          .units = options.auto_wrap_policy,
          .whole_modules = options.ignored_modules,
          .activation_checkpointing = options.activation_checkpointing,
          .mixed_precision = options.mixed_precision.value(),
          .offload = offload_of(options),
          .activation_offload = activation_offload_of(options),
          .backward_prefetch = options.backward_prefetch,
          .forward_prefetch = options.forward_prefetch,
          .limit_all_gathers = options.limit_all_gathers,
          .release_after_every_operator = options.release_after_every_operator,
          .sync_module_states = options.sync_module_states,
          .reduction = options.reduction,
          .broadcast_buffers = options.broadcast_buffers,
          .offload_to_host = options.cpu_offload && options.offload_dir.empty()};
}

bool operator==(const ShardingPlan& a, const ShardingPlan& b) {
  return detail::lines_of(a) == detail::lines_of(b) && a.reduction == b.reduction && a.offload == b.offload &&
         a.device == b.device && a.activation_offload == b.activation_offload &&
         a.zero_plus_plus == b.zero_plus_plus;
}

// Sums of sums are those of a flat tree where the inner groups are of a power of two.
void check_plan(const ShardingPlan& plan, int world_size) {
  if (plan.shards < 1 || world_size % plan.shards != 0)
    refuse_mesh("a number of shards that divides " + std::to_string(world_size) + " ranks",
                std::to_string(plan.shards) + " shards", plan.shards_option);
  check_mixed_precision(plan.mixed_precision);
  if (plan.shards > 1) check_zero_plus_plus(plan.zero_plus_plus, plan.shards, world_size);
  const bool is_nested = plan.shards > 1 && plan.shards < world_size;
  if (!is_nested || plan.reduction != Reduction::kOrdered || std::has_single_bit(unsigned(plan.shards)))
    return;
  refuse_mesh("a number of shards that is a power of two under reduction ordered",
              std::to_string(plan.shards) + " shards; reduction fast takes any number", plan.shards_option);
}

}  // namespace lockstep
