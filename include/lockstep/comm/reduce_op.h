// The vocabulary of reductions.
#pragma once

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

/// Who decides in which order values are summed.
enum class Reduction {
  kOrdered,  ///< a fixed tree over the ranks: the same bits for every algorithm, size and strategy
  kFast      ///< the backend's own algorithm: other last digits
};

}  // namespace lockstep
