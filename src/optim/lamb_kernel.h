// Lamb's arithmetic, in two passes over a parameter with its trust ratio between them; free of torch.
//
// The ratio rests on sums over the whole tensor, which are taken in a fixed order: the bits do not depend on
// position, instruction set or thread, but they do depend on all elements. Order of operations: DeepSpeed's
// FusedLamb, except that the sums are in float64.
// Exported for the tests.
#pragma once

#include <span>

#include "optim/kernels.h"

namespace lockstep::detail {

struct LambCoefficients {
  double grad_scale = 1.0;  // multiplies the gradient first
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  bool eps_inside_sqrt = false;
  double weight_decay = 0.0;  // times the parameter, added to the update
  double step_size = 0.0;     // lr, with the corrections of both means
  double min_ratio = 0.01;
  double max_ratio = 10.0;
};

/// As AdamSegment.
template <class T>
struct LambSegment {
  T* param;
  Gradients grad;
  T* exp_avg;
  T* exp_avg_sq;
  std::int64_t size;
  LambCoefficients by;
};

struct LambSquares {
  double param = 0.0;
  double update = 0.0;
};

/// Elements whose squares are summed as one block.
inline constexpr std::int64_t kLambBlock = 1024;

/// Takes the gradient into the means of elements [begin, end), and writes the sums of squares of these
/// parameters and of their update to `blocks`, one for each kLambBlock elements. Instantiated for float and
/// double.
template <class T>
LOCKSTEP_API void update_moments(const LambSegment<T>& segment, std::int64_t begin, std::int64_t end, Isa isa,
                                 LambSquares* blocks);

/// The sum of the blocks of a whole tensor: of 16 in a row, then of these sums.
LOCKSTEP_API LambSquares sum_of(std::span<const LambSquares> blocks);

/// The norm of the parameter over that of the update, within the bounds; 1 where one of them is 0.
LOCKSTEP_API double trust_ratio(const LambSquares& sums, const LambCoefficients& by);

/// The learning rate, with the corrections of both means in step number `step`, from 1, if they are wanted.
LOCKSTEP_API double lamb_step_size(double lr, double beta1, double beta2, double step, bool bias_correction);

/// Moves elements [begin, end) by their update times `ratio`. Instantiated for float and double.
template <class T>
LOCKSTEP_API void apply_update(const LambSegment<T>& segment, std::int64_t begin, std::int64_t end,
                               double ratio, Isa isa);

// A parameter in the first pass, and in the second. update_all() cuts them into chunks.

template <class T>
struct LambMoments {
  LambSegment<T> segment;
  LambSquares* blocks;
  std::int64_t size;
};

template <class T>
struct LambMove {
  LambSegment<T> segment;
  double ratio;
  std::int64_t size;
};

template <class T>
void update(const LambMoments<T>& moments, std::int64_t begin, std::int64_t end, Isa isa) {
  update_moments(moments.segment, begin, end, isa, moments.blocks + begin / kLambBlock);
}

template <class T>
void update(const LambMove<T>& move, std::int64_t begin, std::int64_t end, Isa isa) {
  apply_update(move.segment, begin, end, move.ratio, isa);
}

inline std::size_t lamb_blocks(std::int64_t elements) {
  return static_cast<std::size_t>((elements + kLambBlock - 1) / kLambBlock);
}

}  // namespace lockstep::detail
