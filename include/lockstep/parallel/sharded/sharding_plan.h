// ShardingPlan: what a sharded engine does with a model. FSDP's options come to one, and so do DeepSpeed's.
// ShardedStats: what it has done so far.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/comm/reduce_op.h>
#include <lockstep/parallel/activations.h>
#include <lockstep/parallel/sharded/fsdp.h>
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
  /// Stands for no limit of elements.
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

/// Counts since the engine was made.
struct ShardedStats {
  std::int64_t gathers = 0;              ///< units that were gathered
  std::int64_t prefetched_gathers = 0;   ///< of these, those that had begun when the unit was used
  std::int64_t gathered_bytes = 0;       ///< bytes of whole units that gathers put together
  std::int64_t reductions = 0;           ///< reduce-scatters (or all-reduces) of a unit's gradients
  std::int64_t reduced_bytes = 0;        ///< bytes of whole units that they took in
  std::int64_t shard_bytes = 0;          ///< parameters that this rank keeps
  std::int64_t narrow_bytes = 0;         ///< the same in 16 bits beside them, which gathers start from
  std::int64_t kept_row_bytes = 0;       ///< whole units that stay from step to step, with the shards in them
  std::int64_t gradient_bytes = 0;       ///< averaged gradients that lie on them now
  std::int64_t bytes_sent = 0;           ///< payload that this rank handed to others for all of these
  std::int64_t peak_gathered_bytes = 0;  ///< most bytes in buffers for gathering and reducing at once
  std::int64_t buffer_bytes = 0;         ///< bytes in such buffers now, with those that wait for the next use

  // Of ZeRO++, see ZeroPlusPlus.
  std::int64_t secondary_bytes = 0;              ///< parameters that this rank keeps for its neighbours, too
  std::int64_t secondary_gathered_bytes = 0;     ///< of gathered_bytes, those that neighbours had
  std::int64_t gather_bytes_sent = 0;            ///< of bytes_sent, in gathers among all that hold shards
  std::int64_t secondary_gather_bytes_sent = 0;  ///< of bytes_sent, in gathers among neighbours
  std::int64_t far_reduction_bytes_sent = 0;     ///< of bytes_sent, sums of neighbours' quantised gradients
};

}  // namespace lockstep

namespace lockstep::detail {

/// The plan for modules on `device`: on the CPU nothing is offloaded to it, on others that comes first.
ShardingPlan placed_on(ShardingPlan plan, at::Device device);

/// What all ranks must do alike, a line each. Directories are every rank's own; policies by predicate are
/// taken for equal.
std::vector<std::string> lines_of(const ShardingPlan& plan);

/// Collective, blocking. @throws CollectiveMismatch naming the option, and both values, where ranks differ
void require_same_plan(const ShardingPlan& plan, const Communicator& comm);

}  // namespace lockstep::detail
