// Gradient clipping: the Trainer's gradient_clip_val and gradient_clip_algorithm.
#pragma once

#include <span>

#include <lockstep/base/enum_option.h>
#include <lockstep/base/export.h>

namespace lockstep {

/// kNorm scales all gradients together by min(1, value / (norm + 1e-6)); kValue clamps each
/// element to +-value.
enum class ClipAlgorithm { kNorm, kValue };

LOCKSTEP_API std::span<const OptionName<ClipAlgorithm>> option_names(ClipAlgorithm);

/// value <= 0: no clipping.
struct GradientClip {
  double value = 0;
  EnumOption<ClipAlgorithm> algorithm = ClipAlgorithm::kNorm;
  double norm_type = 2.0;           ///< kNorm: p of the norm, > 0 or infinity
  bool error_if_nonfinite = false;  ///< kNorm: an error instead of gradients that are zero or NaN
};

}  // namespace lockstep
