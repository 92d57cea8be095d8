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

}  // namespace

StoredElements slice_of(const StoredElements& elements, std::uint64_t begin, std::uint64_t count) {
  StoredElements slice{.dtype = elements.dtype, .runs = {}, .made = elements.made};
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
  const auto bytes = dtype_bytes(elements.dtype);
  for (const auto& run : elements.runs) {
    switch (elements.dtype) {
      case Dtype::kF64:
        convert<of_float64>(run, bytes, sink);
        break;
      case Dtype::kF16:
        convert<of_float16>(run, bytes, sink);
        break;
      case Dtype::kBF16:
        convert<of_bfloat16>(run, bytes, sink);
        break;
      default:
        sink(run);
    }
  }
}

}  // namespace lockstep::detail
