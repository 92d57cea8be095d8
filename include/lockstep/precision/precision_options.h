// The precisions that ship with lockstep, as values, and their names.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include <lockstep/base/export.h>
#include <lockstep/base/options.h>
#include <lockstep/precision/grad_scaler.h>

namespace lockstep {

class Precision;

/// Everything in float32, or as the model has it: "32-true".
struct Fp32 {};

/// Everything in float64: "64-true".
struct Fp64 {};

/// Everything in float16: "16-true". Nothing scales the loss.
struct Fp16True {};

/// Everything in bfloat16: "bf16-true".
struct Bf16True {};

/// Autocast to bfloat16 in the forward pass; parameters, gradients and optimizer in float32: "bf16-mixed".
struct Bf16Mixed {
  std::string_view given_as = {};  ///< the historical name that the user gave, if any
};

/// Autocast to float16 in the forward pass, losses scaled; parameters, gradients and optimizer in float32:
/// "16-mixed".
struct Fp16Mixed {
  GradScalerOptions scaler = {};   ///< how losses are scaled
  std::string_view given_as = {};  ///< as above
};

/// The scaler's options, without a level of their own.
LOCKSTEP_API void describe(OptionVisitor& visitor, Fp16Mixed& options);

/// A precision by its options, by a name of precision_choices() or a user's own. A name that none has is an
/// error when a Trainer or a Fabric is made.
class LOCKSTEP_API PrecisionOptions
    : public NamedVariant<Fp32, Bf16Mixed, Fp16Mixed, Fp64, Fp16True, Bf16True, std::shared_ptr<Precision>> {
 public:
  /// What names an alternative.
  using NamedVariant::NamedVariant;
  PrecisionOptions(std::string_view name);
  PrecisionOptions(const std::string& name) : PrecisionOptions(std::string_view(name)) {}
  PrecisionOptions(const char* name) : PrecisionOptions(std::string_view(name)) {}
};

/// Lightning's names of precisions, also the historical ones, with the values they stand for. Names of
/// precisions that are not built are listed too and say so when they are picked.
LOCKSTEP_API std::span<const Choice<PrecisionOptions>> precision_choices();

/// The precision that `options` ask for. Notes in the log, on rank 0, when its name is historical.
/// @throws ConfigError for a null pointer, or options out of range
LOCKSTEP_API std::shared_ptr<Precision> make_precision(const PrecisionOptions& options);

}  // namespace lockstep
