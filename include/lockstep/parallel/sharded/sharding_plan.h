// ShardingPlan: what a sharded engine does with a model. FSDP's options come to one, and so do DeepSpeed's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>

#include <lockstep/base/export.h>
#include <lockstep/comm/reduce_op.h>
#include <lockstep/parallel/activation_checkpointing.h>
#include <lockstep/parallel/activation_offload.h>
#include <lockstep/parallel/sharded/fsdp.h>
#include <lockstep/parallel/sharded/mixed_precision.h>
#include <lockstep/parallel/wrap_policy.h>

namespace lockstep {

// What of a sharded model lies on disk.

/// Files are made in a folder of this process below `directory`, and removed with it. Elements, unless it
/// says bytes. Names and defaults from block_size on are those of DeepSpeed's section `aio`.
struct DiskOffload {
  std::filesystem::path directory;       ///< must be there
  std::string option = "offload_dir";    ///< by which users name it: for errors
  bool parameters = true;                ///< shards, and the gradients on them, lie in mapped files
  bool optimizer = true;                 ///< the optimizer's state is in memory for what a step works on only
  double optimizer_share = 1.0;          ///< of its elements; the rest, of the first parameters, is in memory
  std::int64_t tile_elements = 1 << 20;  ///< whose state a step has in memory at once, at least a parameter
  std::size_t buffers = 3;               ///< tiles in memory: one is stepped, others are read and written
  std::int64_t block_size = 1 << 20;     ///< bytes that are transferred at once; a multiple of 4096
  std::int64_t queue_depth = 8;          ///< blocks that are under way at most
  bool single_submit = false;            ///< hand blocks to the system one by one
  bool overlap_events = true;            ///< hand over more while some are under way

  bool operator==(const DiskOffload&) const = default;
};

// ZeRO++ (arXiv:2306.10209): what a fully sharded model sends less, and less far.

/// LoCo (arXiv:2407.04480): what quantised gradients have lost so far is added before the next ones are
/// quantised. Kept in 8 bits, which takes a byte for every element of the gradients that travel so; not in
/// checkpoints.
struct ErrorFeedback {
  double decay = 0.8;               ///< weight of the past in the moving average of errors, 0 to 1
  std::int64_t reset_every = 1024;  ///< reductions of a unit's gradients after which it starts anew

  bool operator==(const ErrorFeedback&) const = default;
};

/// Neighbours are consecutive ranks, such as those of a node. Tensors of fewer than two dimensions are never
/// quantised. For parameters that stay gathered until the step only what is said of gradients counts.
struct ZeroPlusPlus {
  int secondary_shards = 1;  ///< neighbours that keep together what has been gathered once, and gather it
                             ///< from each other until parameters change; divides the shards. 1: nobody does
  bool quantized_weights = false;  ///< trained parameters travel, and are seen by operators, in 8 bits;
                                   ///< shards stay exact
  bool quantized_frozen_weights = false;  ///< the same of parameters that are not trained
  bool quantized_gradients = false;       ///< gradients travel in 4 bits, and are summed in float32
  int gradient_neighbours = 1;            ///< that sum them among themselves before others do; divides the
                                          ///< shards. 1, or all: one exchange
  std::optional<ErrorFeedback> error_feedback = {};  ///< of quantised gradients

  bool operator==(const ZeroPlusPlus&) const = default;
};

/// How long parameters stay gathered that forward has used.
enum class KeepGathered {
  kWhileUsed,      ///< until another unit is used: FULL_SHARD, ZeRO stage 3
  kUntilBackward,  ///< until their gradients are there: SHARD_GRAD_OP
  kUntilStep       ///< until the optimizer's step, over all passes of a window: ZeRO stages 1 and 2
};

/// Counts elements, where it does not say otherwise.
struct ShardingPlan {
  static constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

  int shards = 1;                                ///< neighbours that hold one copy together
  KeepGathered keep = KeepGathered::kWhileUsed;  ///< how long
  std::int64_t max_live_elements = 0;            ///< kWhileUsed: what may stay gathered beyond its use, for
                                                 ///< as long as there are no more; least recently used first
  std::int64_t persistent_elements = 0;          ///< parameters of at most so many stay until the step
  std::int64_t most_persistent_elements = kNoLimit;  ///< of all of these; the first ones of the model count
  WrapPolicy units = {};                             ///< which modules are gathered as a whole
  std::optional<WrapPolicy> whole_modules = {};      ///< those that every rank holds whole
  ActivationCheckpointing activation_checkpointing = {};  ///< what backward computes again; see there
  MixedPrecision mixed_precision = {};                    ///< types to compute and communicate in
  std::optional<at::ScalarType> master_dtype = {};  ///< of shards, gradients on them, and the optimizer's
                                                    ///< state, where it is not the model's own type
  std::optional<DiskOffload> offload = {};          ///< what of the model lies on disk
  std::optional<ActivationOffload> activation_offload = {};  ///< and where what forward saves, if there
  ZeroPlusPlus zero_plus_plus = {};                          ///< what travels less
  ReduceOp gradient_op = ReduceOp::kAvg;                     ///< what all ranks' gradients become: kAvg, kSum
  BackwardPrefetch backward_prefetch = BackwardPrefetch::kBackwardPre;  ///< see there
  bool forward_prefetch = true;                                         ///< gather ahead in forward
  std::int64_t most_prefetched_elements = kNoLimit;                     ///< of a unit that is gathered ahead
  std::int64_t most_bucket_elements = kNoLimit;  ///< of one collective; a larger parameter has its own
  bool limit_all_gathers = true;                 ///< free before more is gathered
  bool release_after_every_operator = false;     ///< for tests
  bool sync_module_states = true;                ///< compare, and take rank 0's values
  Reduction reduction = Reduction::kOrdered;     ///< order of sums of the group that is given
  bool broadcast_buffers = true;                 ///< buffers follow rank 0's after every step
  std::optional<at::Device> device = {};         ///< where shards lie, this rank's; none: with the parameters
  bool offload_to_host = false;  ///< on a device: shards, their gradients and the optimizer are the CPU's,
                                 ///< and nothing is on disk
  std::string units_option = "auto_wrap_policy";  ///< by which users name `units`, for errors
  std::string shards_option = "device_mesh";      ///< and `shards`
};

/// Whether an engine of `a` does for a model what one of `b` does. Policies by predicate are taken for equal.
LOCKSTEP_API bool operator==(const ShardingPlan& a, const ShardingPlan& b);

/// @throws ConfigError where the options do not fit the number of ranks
LOCKSTEP_API ShardingPlan plan_of(const Fsdp& options, int world_size, int ranks_per_node);

/// @throws ConfigError for a number of shards that does not divide the ranks, or on which sums in a fixed
/// order cannot be nested: several copies of several shards, and no power of two; for neighbours of ZeRO++
/// that do not divide the shards, and gradients that are quantised with several copies; for gradients in low
/// precision where nothing is computed in any
LOCKSTEP_API void check_plan(const ShardingPlan& plan, int world_size);

}  // namespace lockstep
