// What kernel sources share: a kernel compiled for each instruction set, and gradients of any type as it
// reads them. For kernel sources only: they are compiled without contraction, see kernels.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

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

/// Reads `gradients` as T, float or double.
template <class T>
class GradientReader {
 public:
  GradientReader(const Gradients& gradients, Isa isa) : gradients_(gradients), isa_(isa) {}

  /// The most elements that read() converts at once: whole rows of square_sum()'s lanes.
  static constexpr std::int64_t kRun = 1024;

  /// How many of `size` elements read() gives at once.
  std::int64_t run(std::int64_t size) const { return is_ready() ? size : std::min(size, kRun); }

  /// Elements [begin, begin + size), at most run() of them: where they lie, or converted, until the next
  /// call.
  const T* read(std::int64_t begin, std::int64_t size) {
    if (is_ready()) return static_cast<const T*>(gradients_.elements) + begin;
    convert(begin, size);
    return run_;
  }

 private:
  bool is_ready() const {
    return gradients_.type == (std::is_same_v<T, float> ? GradientType::kFloat32 : GradientType::kFloat64);
  }
  void convert(std::int64_t begin, std::int64_t size);

  const Gradients& gradients_;
  Isa isa_;
  T run_[kRun];
};

}  // namespace lockstep::detail
