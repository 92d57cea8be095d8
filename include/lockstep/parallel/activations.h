// Activations that memory does not hold from forward to backward: a part of a model, or the modules that a
// policy chooses, computes them again in backward, or they are kept on disk, or those of a device on the
// host.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>
#include <lockstep/parallel/wrap_policy.h>

namespace lockstep {

/// Names are those of torch.utils.checkpoint.checkpoint.
struct CheckpointOptions {
  /// Dropout in the second run drops what it dropped in the first. Only LibTorch's default generators are put
  /// back for it, as in torch: one of the program's own (bernoulli_(p, generator)) goes on in the second run,
  /// which then draws, and computes gradients from, other numbers, unnoticed. The function may set its state
  /// itself: both runs begin there.
  bool preserve_rng_state = true;
};

namespace detail {

/// One run of a part of a model, for which nothing was kept.
class LOCKSTEP_API CheckpointedSegment : public std::enable_shared_from_this<CheckpointedSegment> {
 public:
  /// Remembers the generator's and autocast's state of now. `run_again` runs the part anew; it owns what it
  /// needs.
  static std::shared_ptr<CheckpointedSegment> begin(std::function<void()> run_again,
                                                    const CheckpointOptions& options);
  virtual ~CheckpointedSegment();

  /// Follows the first run, in this thread, until what is returned goes.
  virtual std::shared_ptr<void> first_run() = 0;
};

}  // namespace detail

/// Returns function(arguments...), of which no tensor is kept for backward but the arguments: backward runs
/// it once more. As torch.utils.checkpoint.checkpoint(..., use_reentrant=False), which needs neither
/// arguments nor results that require gradients:
///
///     x = ls::checkpoint([this](const at::Tensor& x) { return block->forward(x); }, x);
///
/// The function is copied, and so are the arguments (tensors by reference to their memory); what they refer
/// to must not change until backward is over, and both runs must compute the same. What operators inside
/// write to that was there before, such as running statistics and other buffers, is as after one run;
/// variables of C++, such as counters, change twice. Gradients may be taken several times. Parts may lie
/// inside of each other. Works under every strategy: units that a sharded model has gathered for the second
/// run are those that backward needs anyway.
/// @throws Error from backward, when the second run keeps other tensors than the first one would have
template <class Function, class... Arguments>
auto checkpoint(const CheckpointOptions& options, Function function, Arguments... arguments) {
  const auto segment = detail::CheckpointedSegment::begin(
      [function, arguments...]() mutable { (void)std::invoke(function, arguments...); }, options);
  const auto scope = segment->first_run();
  return std::invoke(function, arguments...);
}

/// Runs `function(arguments...)` without keeping what backward needs of it; backward runs it again.
template <class Function, class... Arguments>
requires std::invocable<Function&, Arguments&...>
auto checkpoint(Function function, Arguments... arguments) {
  return checkpoint(CheckpointOptions{}, std::move(function), std::move(arguments)...);
}

}  // namespace lockstep

namespace torch::nn {
class Module;
}

namespace lockstep {

/// Which modules are checkpointed, as an option: none, every unit of the strategy, or a choice of one's own.
/// As text (flags, YAML): `true`, `false`, or that of a WrapPolicy, `TransformerEncoderLayer`.
class LOCKSTEP_API ActivationCheckpointing {
 public:
  /// None.
  ActivationCheckpointing() = default;
  /// Every unit, or none.
  template <std::same_as<bool> Bool>
  ActivationCheckpointing(Bool is_on) : is_on_(is_on) {}
  ActivationCheckpointing(WrapPolicy policy) : is_on_(true), policy_(std::move(policy)) {}
  template <std::predicate<const torch::nn::Module&> Function>
  ActivationCheckpointing(Function predicate) : ActivationCheckpointing(WrapPolicy(std::move(predicate))) {}
  /// As text. @throws ConfigError naming what is accepted
  ActivationCheckpointing(std::string_view text);
  ActivationCheckpointing(const char* text) : ActivationCheckpointing(std::string_view(text)) {}

  /// Whether activations are computed again.
  bool is_on() const { return is_on_; }
  /// Empty: every unit.
  const std::optional<WrapPolicy>& policy() const { return policy_; }

 private:
  bool is_on_ = false;
  std::optional<WrapPolicy> policy_ = {};
};

template <>
struct LOCKSTEP_API OptionType<ActivationCheckpointing> {
  static Expected<ActivationCheckpointing> parse(std::string_view text);
  static std::string print(const ActivationCheckpointing& value);
  static std::string accepted();
};

/// Checkpoints modules inside of `module`, which stay as they are, under every strategy; for configure_model
/// and loops of one's own. torch.distributed.algorithms._checkpoint.apply_activation_checkpointing:
///
///     ls::apply_activation_checkpointing(*net, ls::types<nn::TransformerEncoderLayer>());
///     ls::apply_activation_checkpointing(*net, [](const nn::Module& part) { return part.name() == "Block";
///     });
///
/// From the first operator that uses a parameter of a chosen module until the first that uses one of another
/// (or backward), operators are recorded and what autograd would save of them is not; backward runs
/// them once more, with the same random numbers, autocast and gradient mode, and gives the bits that it would
/// have given without. Kept are what comes into the module and what is made from no tensor (constants).
/// Modules without parameters belong to what came before. Choose blocks, such as the layers of a
/// transformer: of modules that lie inside of each other the innermost count, and parameters that several
/// share belong to none. A second run of a block costs its forward.
///
/// Recorded are operators: memory that a block fills by pointer in a tensor that it computed is not seen
/// (the first passes are compared byte by byte, which names it); use ls::checkpoint() there. What comes
/// into a block must not be written to until backward; running statistics of batch normalisation and writes
/// to buffers inside of the block are as without.
///
/// Holds as long as the module lives. Call it anew after the module was moved or converted by hand
/// (strategies do so themselves); another call for the same module replaces the policy. Not Collective.
/// @throws ConfigError where the policy matches nothing, naming the types there are; for a module that no
/// std::shared_ptr owns, or of which another call has chosen parts
LOCKSTEP_API void apply_activation_checkpointing(const torch::nn::Module& module,
                                                 const WrapPolicy& policy = {});

/// Where activations go while nobody needs them.
struct ActivationOffload {
  std::filesystem::path directory = {};  ///< must be there; empty: that of temporary files
  std::int64_t min_bytes = 1 << 20;      ///< smaller tensors stay in memory
  std::string option = "directory";      ///< by which users name the directory: for errors

  bool operator==(const ActivationOffload&) const = default;
};

/// Keeps on disk what autograd saves in a forward pass of `module`, which stays as it is, under every
/// strategy; for configure_model and loops of one's own. As torch.autograd.graph.save_on_cpu() or an
/// offload_wrapper() around the module, where the module computes on the CPU:
///
///     ls::offload_activations(*net, {.directory = "/data"});
///
/// From the first operator that uses one of its parameters until backward, saved tensors of `min_bytes` or
/// more are copied into mapped files without names, once for all that share memory; they go to disk when
/// the system needs the memory (cgroups; RLIMIT_DATA does not count them), and backward reads ahead.
/// Gradients have the bits that they have without. With activation checkpointing what comes into the blocks
/// goes to disk. Parameters, and what explicit ls::checkpoint() calls take, stay in memory.
///
/// On a device copies run beside what is computed, and backward brings the next one along. With no directory
/// they stay in page-locked memory of the host; to one they pass through two blocks of it.
///
/// Holds as long as the module lives; another call for the same module replaces the options. Not
/// Collective; blocks to make a folder. Forward throws IoError where the disk has no room.
/// @throws ConfigError for a directory that cannot be written to, a module without parameters or one that
/// no std::shared_ptr owns, and min_bytes below 1
LOCKSTEP_API void offload_activations(const torch::nn::Module& module, const ActivationOffload& options = {});

}  // namespace lockstep
