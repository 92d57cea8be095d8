// Gradient clipping, with a norm whose bits depend on nothing but the gradients.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>
#include <lockstep/device/scalar.h>

namespace lockstep {

// Gradient clipping: the Trainer's gradient_clip_val and gradient_clip_algorithm.

/// kNorm scales all gradients together by min(1, value / (norm + 1e-6)); kValue clamps each
/// element to +-value.
enum class ClipAlgorithm { kNorm, kValue };

LOCKSTEP_API std::span<const OptionName<ClipAlgorithm>> option_names(ClipAlgorithm);

/// value <= 0: no clipping.
struct GradientClip {
  double value = 0;                                            ///< the greatest norm, or the greatest element
  EnumOption<ClipAlgorithm> algorithm = ClipAlgorithm::kNorm;  ///< what is limited
  double norm_type = 2.0;                                      ///< kNorm: p of the norm, > 0 or infinity
  bool error_if_nonfinite = false;  ///< kNorm: an error instead of gradients that are zero or NaN
};

/// Elements whose squares are summed as one block by grad_norm().
inline constexpr std::int64_t kGradNormBlock = 1024;

/// The sum of squares of each block of kGradNormBlock consecutive elements (row-major) of `gradient`, the
/// last one possibly shorter, in float64. A gradient cut at multiples of kGradNormBlock gives the same sums
/// piece by piece, which is how sharded strategies get grad_norm()'s bits.
/// @throws ConfigError if the gradient is sparse
LOCKSTEP_API std::vector<double> block_square_sums(const at::Tensor& gradient);
/// Those of several, one after the other; from a device in one copy.
LOCKSTEP_API std::vector<double> block_square_sums(std::span<const at::Tensor> gradients);

/// The sum of `values` by a fixed tree: neighbours in pairs, then pairs of pairs, an odd last one carried up.
LOCKSTEP_API double pairwise_sum(std::span<const double> values);

/// The 2-norm of all defined gradients of `parameters` together: blocks of each gradient in float64, in the
/// order given, added by pairwise_sum(). 0 if no gradient is defined. Independent of the number of threads.
/// @throws ConfigError if a gradient is sparse
LOCKSTEP_API double grad_norm(std::span<const at::Tensor> parameters);

/// The p-norm of all defined gradients together, in float64, as torch.nn.utils.get_total_norm: the largest
/// magnitude for an infinite `norm_type`; grad_norm(parameters), with its fixed blocks, for 2.
/// @throws ConfigError unless norm_type > 0, or as grad_norm(parameters)
LOCKSTEP_API double grad_norm(std::span<const at::Tensor> parameters, double norm_type);

/// What gradients of norm `norm` are to be multiplied by: min(1, max_norm / (norm + 1e-6)).
/// @throws ConfigError if max_norm is negative or NaN; Error if `error_if_nonfinite` and the norm is not
/// finite
LOCKSTEP_API double clip_coefficient(double norm, double max_norm, bool error_if_nonfinite = false);

/// Scales all gradients by clip_coefficient() and returns the norm they had before; as
/// torch.nn.utils.clip_grad_norm_. An infinite norm makes gradients zero (infinite ones NaN), a NaN norm
/// makes all of them NaN: torch's habit too.
/// @throws ConfigError if max_norm is negative or NaN, or as grad_norm(); Error, before anything has changed,
/// if `error_if_nonfinite` and the norm is infinite or NaN
LOCKSTEP_API double clip_grad_norm(std::span<const at::Tensor> parameters, double max_norm,
                                   double norm_type = 2.0, bool error_if_nonfinite = false);

/// Clips as `clip` says, whose value is > 0; gives the norm before that, or 0 where each value is clipped. Of
/// gradients on a device in 2-norms nobody waits for the device until the norm is read, unless
/// error_if_nonfinite. @throws as clip_grad_norm() and clip_grad_value()
LOCKSTEP_API Scalar clip_gradients_lazily(std::span<const at::Tensor> parameters, const GradientClip& clip);

/// The second half of clip_grad_norm(), for a norm that was computed elsewhere.
/// @throws as clip_grad_norm()
LOCKSTEP_API double scale_gradients_to(std::span<const at::Tensor> parameters, double norm, double max_norm,
                                       bool error_if_nonfinite = false);

/// Clamps every element of every gradient to [-limit, limit]; as torch.nn.utils.clip_grad_value_.
/// @throws ConfigError if limit is negative or NaN, or a gradient is sparse
LOCKSTEP_API void clip_grad_value(std::span<const at::Tensor> parameters, double limit);

}  // namespace lockstep
