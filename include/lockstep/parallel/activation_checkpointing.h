// Activation checkpointing by policy: chosen modules compute in backward again what they do not keep in
// forward.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <string_view>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>
#include <lockstep/parallel/wrap_policy.h>

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

}  // namespace lockstep
