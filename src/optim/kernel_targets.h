// Runs a kernel compiled for each instruction set. For kernel sources only: they are compiled without
// contraction, see kernels.h.
#pragma once

#include "optim/kernels.h"

#if defined(__x86_64__)
#define LOCKSTEP_FOR_AVX2 __attribute__((target("avx2")))
#define LOCKSTEP_FOR_AVX512 __attribute__((target("avx512f")))
#else
#define LOCKSTEP_FOR_AVX2
#define LOCKSTEP_FOR_AVX512
#endif
#define LOCKSTEP_INLINE inline __attribute__((always_inline))

namespace lockstep::detail {

template <class Kernel, class... Arguments>
LOCKSTEP_FOR_AVX2 auto run_avx2(const Arguments&... arguments) {
  return Kernel::run(arguments...);
}

template <class Kernel, class... Arguments>
LOCKSTEP_FOR_AVX512 auto run_avx512(const Arguments&... arguments) {
  return Kernel::run(arguments...);
}

/// Kernel::run(arguments...), which must be LOCKSTEP_INLINE, compiled for `isa`.
template <class Kernel, class... Arguments>
auto run_for(Isa isa, const Arguments&... arguments) {
  if (isa == Isa::kAvx512) return run_avx512<Kernel>(arguments...);
  if (isa == Isa::kAvx2) return run_avx2<Kernel>(arguments...);
  return Kernel::run(arguments...);
}

}  // namespace lockstep::detail
