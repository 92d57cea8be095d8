// The first use of the functions that LibTorch takes from MKL.
#pragma once

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// Calls each of these functions once, in both types that they have. MKL chooses the code of a function at
/// its first call; where several threads make it, one of them may get results of half the precision (exp of
/// float32 differs by 2e-4), once, without a word, and a run has other bits than the one before. Takes about
/// 4 ms in a new process, then 20 us. Call it before threads compute. Source:
/// https://github.com/pytorch/pytorch/issues/188792
LOCKSTEP_API void choose_vector_math();

}  // namespace lockstep::detail
