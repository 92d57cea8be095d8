// The elements of a tensor in mapped files, where they need not be contiguous.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <lockstep/formats/safetensors.h>

namespace lockstep::detail {

/// Takes bytes in order.
using ByteSink = std::function<void(std::span<const std::byte>)>;

/// Elements that are not contiguous, such as those of a transposed tensor.
struct StridedElements {
  std::span<const std::byte> storage;
  std::int64_t offset = 0;  ///< elements in `storage` before the first of the tensor
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> stride;  ///< in elements, by dimension
  std::uint64_t begin = 0;           ///< the first one meant, in row-major order
  std::uint64_t count = 0;           ///< how many from there on
};

/// Whole elements, row-major: those of the first run come first.
struct StoredElements {
  safetensors::Dtype dtype = safetensors::Dtype::kF32;
  std::vector<std::span<const std::byte>> runs = {};
  std::optional<StridedElements> strided = {};  ///< instead of runs
};

/// `count` of the elements, from number `begin` on. @throws std::out_of_range unless it has them
LOCKSTEP_API StoredElements slice_of(const StoredElements& elements, std::uint64_t begin,
                                     std::uint64_t count);

/// float32 for the element types float64, float16, bfloat16 and float32; other types unchanged.
LOCKSTEP_API safetensors::Dtype as_float32(safetensors::Dtype dtype);

/// Passes the elements to `sink`, with the type of as_float32(): at most a few megabytes at a time where they
/// are converted or gathered, otherwise in place. Rounds float64 to the nearest, as PyTorch does.
LOCKSTEP_API void write_as_float32(const StoredElements& elements, const ByteSink& sink);

}  // namespace lockstep::detail
