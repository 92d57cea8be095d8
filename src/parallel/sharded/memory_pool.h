// Flat buffers that come and go with every unit: fresh pages cost more than the bytes that travel.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lockstep::detail {

/// Keeps what is given back, up to the largest amount that was in use at once. Not thread-safe.
class MemoryPool {
 public:
  /// A flat CPU tensor; its contents are what they are.
  at::Tensor take(std::int64_t elements, at::ScalarType dtype);
  /// Takes back what take() gave; nobody may use it any more.
  void give(at::Tensor buffer);

  std::int64_t peak_bytes() const { return peak_; }

 private:
  std::vector<at::Tensor> free_;
  std::int64_t in_use_ = 0;
  std::int64_t peak_ = 0;
  std::int64_t kept_ = 0;  // bytes of free_
};

}  // namespace lockstep::detail
