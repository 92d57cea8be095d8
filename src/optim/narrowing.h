// Kernels that round float32 to 16 bits; free of torch.
#pragma once

#include <cstdint>

#include <lockstep/base/export.h>

#include "optim/kernels.h"

namespace lockstep::detail {

/// Rounds elements [begin, end) of `from` to the nearest, ties to even, and writes them to the same places of
/// `to`. Exported for the tests of its bits.
LOCKSTEP_API void narrow(const float* from, const NarrowElements& to, std::int64_t begin, std::int64_t end,
                         Isa isa);

}  // namespace lockstep::detail
