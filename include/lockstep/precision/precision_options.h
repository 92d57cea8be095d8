// The precisions that ship with lockstep, as values, and their names.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <variant>

#include <lockstep/base/export.h>
#include <lockstep/base/options.h>

namespace lockstep {

class Precision;

/// Everything in float32: "32-true".
struct Fp32 {};

/// Autocast to bfloat16 in the forward pass; parameters, gradients and optimizer in float32: "bf16-mixed".
struct Bf16Mixed {
  std::string_view given_as = {};  ///< the historical name that the user gave, if any
};

/// A precision by its options, or a user's own.
using PrecisionOptions = std::variant<Fp32, Bf16Mixed, std::shared_ptr<Precision>>;

/// Lightning's names of precisions, also the historical ones, with the values they stand for. Names of
/// precisions that are not built yet are listed too and say so when they are picked.
LOCKSTEP_API std::span<const Choice<PrecisionOptions>> precision_choices();

/// The precision that `options` ask for. Notes in the log, on rank 0, when its name is historical.
/// @throws ConfigError for a null pointer
LOCKSTEP_API std::shared_ptr<Precision> make_precision(const PrecisionOptions& options);

}  // namespace lockstep
