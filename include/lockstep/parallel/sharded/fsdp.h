// The options of fully sharded data parallelism, with the element types that it computes and communicates in.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>
#include <lockstep/base/options.h>
#include <lockstep/cluster/detect.h>
#include <lockstep/comm/reduce_op.h>
#include <lockstep/parallel/activations.h>
#include <lockstep/parallel/joining_options.h>
#include <lockstep/parallel/wrap_policy.h>
#include <lockstep/state/module_state.h>

namespace lockstep {

/// Fields of torch.distributed.fsdp.MixedPrecision. Shards, the optimizer's state and, unless they are to be
/// kept in low precision, the gradients on shards have the model's own type; what is empty is left as it is.
struct MixedPrecision {
  std::optional<at::ScalarType> param_dtype = {};   ///< of gathered parameters: what operators compute in
  std::optional<at::ScalarType> reduce_dtype = {};  ///< that gradients travel in; by default param_dtype
  std::optional<at::ScalarType> buffer_dtype = {};  ///< of floating-point buffers
  bool keep_low_precision_grads = false;  ///< gradients on shards stay in param_dtype, which is of 16 bits:
                                          ///< half the memory, and nothing is widened before the optimizer
  bool cast_forward_inputs = true;        ///< gives operators that use a parameter all their floating-point
                                          ///< arguments in its type
};

/// As an option: one type for all, or each by itself. As text (flags, YAML): `bfloat16`, or a map,
/// `{param_dtype: bfloat16, reduce_dtype: float32}`; `none`.
class LOCKSTEP_API MixedPrecisionChoice {
 public:
  MixedPrecisionChoice() = default;
  MixedPrecisionChoice(at::ScalarType all)
      : value_{.param_dtype = all, .reduce_dtype = all, .buffer_dtype = all} {}
  MixedPrecisionChoice(MixedPrecision value) : value_(value) {}

  /// The element types.
  const MixedPrecision& value() const { return value_; }
  /// Whether no type differs from the model's own.
  bool has_no_type() const { return !value_.param_dtype && !value_.reduce_dtype && !value_.buffer_dtype; }
  /// Whether it says nothing.
  bool is_none() const {
    return has_no_type() && value_.cast_forward_inputs && !value_.keep_low_precision_grads;
  }

 private:
  MixedPrecision value_;
};

template <>
struct LOCKSTEP_API OptionType<MixedPrecisionChoice> {
  /// It is written as a map.
  static constexpr bool kIsMap = true;
  static Expected<MixedPrecisionChoice> parse(std::string_view text);
  static std::string print(const MixedPrecisionChoice& value);
  static std::string accepted();
  static std::string type() { return "name or map"; }
};

/// What is cut into shards, and over which ranks; FSDP's names.
enum class ShardingStrategy {
  kFullShard,        ///< parameters, gradients, optimizer state
  kShardGradOp,      ///< gradients and optimizer state; parameters stay gathered from forward to backward
  kNoShard,          ///< nothing: every rank holds all, as under ddp
  kHybridShard,      ///< FULL_SHARD inside of a node, copies across nodes
  kHybridShardZero2  ///< SHARD_GRAD_OP inside of a node, copies across nodes
};

/// When the unit that backward needs next is gathered; FSDP's names.
enum class BackwardPrefetch {
  kBackwardPre,   ///< before the gradients of the current one are computed: most overlap
  kBackwardPost,  ///< after: one unit less in memory
  kNone           ///< when it is used
};

LOCKSTEP_API std::span<const OptionName<ShardingStrategy>> option_names(ShardingStrategy);
LOCKSTEP_API std::span<const OptionName<BackwardPrefetch>> option_names(BackwardPrefetch);

/// Fully sharded data parallelism without wrapping: parameters, gradients and optimizer state are cut into
/// shards, one per rank, and a unit's parameters are gathered when an operator uses them. Options are those
/// of torch.distributed.fsdp.FullyShardedDataParallel and of Lightning's FSDPStrategy where names agree.
struct Fsdp {
  EnumOption<ShardingStrategy> sharding_strategy =
      ShardingStrategy::kFullShard;   ///< what is cut, and over which ranks
  std::vector<int> device_mesh = {};  ///< of the hybrid ones: {copies, shards}; by default nodes x devices
  WrapPolicy auto_wrap_policy = {};   ///< which modules become units
  std::optional<WrapPolicy> ignored_modules = {};  ///< modules whose parameters are not sharded: every rank
                                                   ///< holds them, and their gradients are averaged
  ActivationCheckpointing activation_checkpointing = {};  ///< modules that backward runs again instead of
                                                          ///< keeping what they computed; `true`: every unit
  bool activation_offload = false;            ///< what forward saves for backward lies on the CPU; where
                                              ///< that is where the model computes: on disk
  MixedPrecisionChoice mixed_precision = {};  ///< the types to compute and communicate in, if others
  bool cpu_offload = false;  ///< parameters, gradients and optimizer state lie on the CPU; where that is
                             ///< where the model computes: on disk
  std::filesystem::path offload_dir = {};  ///< for both; by default temporary files', on devices the host
  EnumOption<BackwardPrefetch> backward_prefetch = BackwardPrefetch::kBackwardPre;  ///< see there
  bool forward_prefetch = true;   ///< gather the next unit of forward while the current one computes
  bool limit_all_gathers = true;  ///< free what is not needed before more is gathered
  bool release_after_every_operator = false;  ///< for tests of operators of one's own: gathered memory is
                                              ///< overwritten and freed as soon as an operator is done
  bool sync_module_states = true;  ///< compare the ranks' modules at setup and make them equal to rank 0's
  bool broadcast_buffers = true;   ///< buffers follow rank 0's after every step, as under ddp
  EnumOption<StateDictType> state_dict_type =
      StateDictType::kFull;  ///< how checkpoints hold the model: gathered on
                             ///< rank 0, or every rank its shards
  std::chrono::milliseconds timeout = std::chrono::minutes(30);  ///< for joining and for each collective
  std::string process_group_backend = "auto";             ///< what carries the bytes: CommOptions::backend
  EnumOption<Reduction> reduction = Reduction::kOrdered;  ///< order of sums
  bool check_collectives = true;  ///< ranks compare what they call before each collective
  EnumOption<StartMethod> start_method = StartMethod::kAuto;  ///< how ranks come to be
  EnvironmentChoice cluster_environment = {};  ///< who told each rank its place; by default detected
};

LOCKSTEP_API void describe(OptionVisitor& visitor, Fsdp& options);

}  // namespace lockstep
