// Flat buffers that come and go with every unit: fresh pages cost more than the bytes that travel.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lockstep::detail {

/// Keeps what is given back, up to the largest amount that was in use at once since forget_peak(). Not
/// thread-safe.
class MemoryPool {
 public:
  /// A flat CPU tensor; its contents are what they are.
  at::Tensor take(std::int64_t elements, at::ScalarType dtype);
  /// Takes back what take() gave; nobody may use it any more.
  void give(at::Tensor buffer);

  /// What was needed until now says nothing about what will be: keeps nothing of it.
  void forget_peak();

  /// Most that was in use at once, ever.
  std::int64_t peak_bytes() const { return peak_; }
  /// In use, or kept for the next use.
  std::int64_t bytes() const { return in_use_ + kept_; }

 private:
  std::vector<at::Tensor> free_;
  std::int64_t in_use_ = 0;
  std::int64_t peak_ = 0;
  std::int64_t limit_ = 0;  // of in_use_ and kept_ together
  std::int64_t kept_ = 0;   // bytes of free_
};

}  // namespace lockstep::detail
