// Amounts of memory that are estimated.
#pragma once

#include <cstdint>
#include <limits>

namespace lockstep::deepspeed {

inline constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

inline constexpr double kBeyondInt64 = 9223372036854775808.0;  ///< 2^63

/// As Python's int(); what does not fit is the largest number that does.
inline std::int64_t bytes(double amount) {
  return amount < kBeyondInt64 ? static_cast<std::int64_t>(amount) : std::numeric_limits<std::int64_t>::max();
}

}  // namespace lockstep::deepspeed
