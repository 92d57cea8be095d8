#include <lockstep/parallel/sharded/sharding_plan.h>

#include <bit>
#include <string>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/parallel/sharded/mixed_precision.h>

#include "offload/offload_directory.h"
#include "parallel/sharded/plan_lines.h"

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
  return ActivationOffload{.directory = offload_directory(options), .option = "offload_dir"};
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
          .broadcast_buffers = options.broadcast_buffers};
}

bool operator==(const ShardingPlan& a, const ShardingPlan& b) {
  return detail::lines_of(a) == detail::lines_of(b) && a.reduction == b.reduction && a.offload == b.offload &&
         a.activation_offload == b.activation_offload && a.zero_plus_plus == b.zero_plus_plus;
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
