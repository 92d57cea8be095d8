#include "formats/stored_elements.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace lockstep::detail {
namespace {

using safetensors::Dtype;

constexpr std::size_t kChunk = std::size_t{1} << 18;  // elements

template <class T>
T element(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

float of_float64(const std::byte* at) { return static_cast<float>(element<double>(at)); }

float of_bfloat16(const std::byte* at) {
  return std::bit_cast<float>(std::uint32_t{element<std::uint16_t>(at)} << 16);
}

// https://en.wikipedia.org/wiki/Half-precision_floating-point_format
float of_float16(const std::byte* at) {
  const std::uint32_t bits = element<std::uint16_t>(at);
  const std::uint32_t sign = (bits & 0x8000) << 16;
  const std::uint32_t exponent = bits >> 10 & 0x1F;
  const std::uint32_t fraction = bits & 0x3FF;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F80'0000 | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float tiny = static_cast<float>(fraction) * 0x1p-24F;
  return sign == 0 ? tiny : -tiny;
}

template <float (*kConvert)(const std::byte*)>
void convert(std::span<const std::byte> run, std::size_t bytes, const ByteSink& sink) {
  std::vector<float> chunk(std::min(kChunk, run.size() / bytes));
  for (std::size_t begin = 0; begin < run.size(); begin += bytes * chunk.size()) {
    chunk.resize(std::min(chunk.size(), (run.size() - begin) / bytes));
    for (std::size_t i = 0; i < chunk.size(); ++i) chunk[i] = kConvert(run.data() + begin + bytes * i);
    sink(std::as_bytes(std::span(chunk)));
  }
}

void write_run(Dtype dtype, std::span<const std::byte> run, const ByteSink& sink) {
  switch (dtype) {
    case Dtype::kF64:
      return convert<of_float64>(run, dtype_bytes(dtype), sink);
    case Dtype::kF16:
      return convert<of_float16>(run, dtype_bytes(dtype), sink);
    case Dtype::kBF16:
      return convert<of_bfloat16>(run, dtype_bytes(dtype), sink);
    default:
      return sink(run);
  }
}

/// Goes through a tensor in row-major order; the last dimension changes first.
class Walk {
 public:
  explicit Walk(const StridedElements& elements)
      : shape_(elements.shape),
        stride_(elements.stride),
        index_(elements.shape.size()),
        place_(elements.offset) {
    auto rest = elements.begin;
    for (std::size_t dim = index_.size(); dim-- > 0;) {
      if (shape_[dim] == 1) stride_[dim] = 0;  // which may be any number, and is never used
      const auto extent = static_cast<std::uint64_t>(shape_[dim]);
      index_[dim] = static_cast<std::int64_t>(rest % extent);
      place_ += index_[dim] * stride_[dim];
      rest /= extent;
    }
  }

  /// Where the next element lies, in elements of the storage.
  std::size_t next() {
    const auto place = static_cast<std::size_t>(place_);
    for (std::size_t dim = index_.size(); dim-- > 0;) {
      place_ += stride_[dim];
      if (++index_[dim] < shape_[dim]) break;
      place_ -= shape_[dim] * stride_[dim];
      index_[dim] = 0;
    }
    return place;
  }

 private:
  std::span<const std::int64_t> shape_;
  std::vector<std::int64_t> stride_;
  std::vector<std::int64_t> index_;
  std::int64_t place_;
};

void write_strided(Dtype dtype, const StridedElements& elements, const ByteSink& sink) {
  const auto bytes = dtype_bytes(dtype);
  std::vector<std::byte> chunk(bytes * std::min<std::uint64_t>(kChunk, elements.count));
  auto walk = Walk(elements);
  for (auto missing = elements.count; missing > 0;) {
    chunk.resize(bytes * std::min<std::uint64_t>(chunk.size() / bytes, missing));
    for (std::size_t at = 0; at < chunk.size(); at += bytes)
      std::memcpy(&chunk[at], &elements.storage[bytes * walk.next()], bytes);
    write_run(dtype, chunk, sink);
    missing -= chunk.size() / bytes;
  }
}

StridedElements slice_of_strided(StridedElements strided, std::uint64_t begin, std::uint64_t count) {
  if (begin > strided.count || count > strided.count - begin)
    throw std::out_of_range("elements beyond the end of a tensor");
  strided.begin += begin;
  strided.count = count;
  return strided;
}

}  // namespace

StoredElements slice_of(const StoredElements& elements, std::uint64_t begin, std::uint64_t count) {
  StoredElements slice{.dtype = elements.dtype};
  if (elements.strided) {
    slice.strided = slice_of_strided(*elements.strided, begin, count);
    return slice;
  }
  const auto bytes = dtype_bytes(elements.dtype);
  for (const auto& run : elements.runs) {
    const auto has = run.size() / bytes;
    const auto skipped = std::min<std::uint64_t>(begin, has);
    const auto taken = std::min<std::uint64_t>(count, has - skipped);
    if (taken > 0) slice.runs.push_back(run.subspan(skipped * bytes, taken * bytes));
    begin -= skipped;
    count -= taken;
  }
  if (count > 0) throw std::out_of_range("elements beyond the end of a tensor");
  return slice;
}

Dtype as_float32(Dtype dtype) {
  const bool is_converted = dtype == Dtype::kF64 || dtype == Dtype::kF16 || dtype == Dtype::kBF16;
  return is_converted ? Dtype::kF32 : dtype;
}

void write_as_float32(const StoredElements& elements, const ByteSink& sink) {
  if (elements.strided) return write_strided(elements.dtype, *elements.strided, sink);
  for (const auto& run : elements.runs) write_run(elements.dtype, run, sink);
}

}  // namespace lockstep::detail
