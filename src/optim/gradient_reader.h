// How kernels read gradients: the one place that knows the types of their elements; free of torch.
//
// Elements of another type than the arithmetic's are converted a run at a time, into memory that stays in the
// cache, and never as a whole. What is narrower is widened exactly, so the bits are those of gradients that
// were widened before.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "optim/kernels.h"

namespace lockstep::detail {

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
