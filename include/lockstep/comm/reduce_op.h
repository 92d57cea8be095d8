// The vocabulary of reductions.
#pragma once

#include <span>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>

namespace lockstep {

/// How the values of all ranks become one.
enum class ReduceOp {
  kSum,      ///< sum; of integers modulo 2^bits
  kAvg,      ///< sum, then divided by the number of ranks; floating point and complex only
  kMin,      ///< smallest value, NaN where any rank has NaN; of bool: and; not of complex
  kMax,      ///< largest value, NaN where any rank has NaN; of bool: or; not of complex
  kProduct,  ///< product; of integers modulo 2^bits
  kBitAnd,   ///< bitwise and; integers and bool only
  kBitOr,    ///< bitwise or; integers and bool only
  kBitXor    ///< bitwise exclusive or; integers and bool only
};

/// Lightning's and c10d's names, and those above: "mean", "band", "bit_and", ...
LOCKSTEP_API std::span<const OptionName<ReduceOp>> option_names(ReduceOp);

/// Who decides in which order values are summed.
enum class Reduction {
  kOrdered,  ///< a fixed tree over the ranks: the same bits for every algorithm, size and strategy
  kFast      ///< the backend's own algorithm: other last digits
};

}  // namespace lockstep
