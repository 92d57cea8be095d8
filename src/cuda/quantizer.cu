// Numbers as small integers, by the rules of parallel/sharded/block_quantizer.cpp: a warp has a block.
#include <cstdint>

#include "cuda/kernel_types.cuh"
#include "cuda/kernels.h"

namespace lockstep::detail {
namespace {

constexpr int kBlock = 256, kHalf = kBlock / 2;
constexpr int kLanes = 32;
constexpr int kWarpsPerBlock = 8;
constexpr int kNumbersPerLane = kHalf / kLanes;  // of each half: what a lane reads and writes at once

// Those of block_quantizer.cpp.
constexpr float kSmallest = 1.2e-36F;
constexpr float kRounder = 12582912.0F;

// The numbers of a lane: some of the block's first half, and their counterparts of the second.
struct LaneNumbers {
  float first[kNumbersPerLane], second[kNumbersPerLane];
};

__device__ LaneNumbers numbers_of_lane(const float* values, std::int64_t elements, int lane) {
  LaneNumbers numbers;
  for (int i = 0; i < kNumbersPerLane; ++i) {
    const int at = lane * kNumbersPerLane + i;
    numbers.first[i] = at < elements ? values[at] : 0.0F;
    numbers.second[i] = at + kHalf < elements ? values[at + kHalf] : 0.0F;
  }
  return numbers;
}

// Magnitudes are in the order of their bits, infinity and NaN the largest.
__device__ int largest_magnitude(const LaneNumbers& numbers) {
  int largest = 0;
  for (int i = 0; i < kNumbersPerLane; ++i) {
    largest = max(largest, __float_as_int(numbers.first[i]) & 0x7fffffff);
    largest = max(largest, __float_as_int(numbers.second[i]) & 0x7fffffff);
  }
  for (int other = kLanes / 2; other > 0; other /= 2)
    largest = max(largest, __shfl_xor_sync(0xffffffffU, largest, other));
  return largest;
}

__device__ float scale_of(int largest, float largest_code) {
  const float magnitude = __int_as_float(largest);
  if (largest >= 0x7f800000) return __int_as_float(0x7fc00000);
  return magnitude < kSmallest ? 0.0F : magnitude / largest_code;
}

__device__ int code_of(float value, float inverse) { return __float_as_int(value * inverse + kRounder); }

template <int kBits>
__global__ void quantize_kernel(const CudaQuantization by) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const auto block = static_cast<std::int64_t>(blockIdx.x) * kWarpsPerBlock + threadIdx.x / kLanes;
  const auto begin = block * kBlock;
  if (begin >= by.elements) return;  // of all lanes of the warp
  const auto numbers = numbers_of_lane(by.values + begin, by.elements - begin, lane);
  const float scale = scale_of(largest_magnitude(numbers), kBits == 8 ? 127.0F : 7.0F);
  const float inverse = scale > 0.0F ? 1.0F / scale : 0.0F;
  if (lane == 0) by.scales[block] = scale;
  auto* const codes = by.codes + block * (kBlock * kBits / 8) + lane * kNumbersPerLane;
  for (int i = 0; i < kNumbersPerLane; ++i) {
    const int first = code_of(numbers.first[i], inverse), second = code_of(numbers.second[i], inverse);
    if (kBits == 8) {
      codes[i] = static_cast<std::uint8_t>(first);
      codes[i + kHalf] = static_cast<std::uint8_t>(second);
    } else {
      codes[i] = static_cast<std::uint8_t>((first & 15) | ((second & 15) << 4));
    }
  }
}

template <int kBits>
__device__ int code_at(const std::uint8_t* codes, std::int64_t element) {
  if (kBits == 8) return static_cast<std::int8_t>(codes[element]);
  const auto block = element / kBlock;
  const int at = static_cast<int>(element % kBlock);
  const int byte = codes[block * kHalf + at % kHalf];
  return ((at < kHalf ? byte & 15 : byte >> 4) ^ 8) - 8;
}

template <int kBits>
__global__ void dequantize_kernel(const CudaDequantization by) {
  const auto stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (auto i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < by.elements;
       i += stride) {
    const float number = static_cast<float>(code_at<kBits>(by.codes, i)) * by.scales[i / kBlock];
    by.values[i] = by.adds ? by.values[i] + number : number;
  }
}

template <class Quantization>
bool is_empty_or_wrong(const Quantization& by, int& error) {
  error = by.bits == 8 || by.bits == 4 ? 0 : static_cast<int>(cudaErrorInvalidValue);
  return error != 0 || by.elements == 0;
}

}  // namespace

int cuda_quantize(const CudaQuantization& by, void* stream) {
  int error = 0;
  if (is_empty_or_wrong(by, error)) return error;
  const auto blocks =
      static_cast<unsigned>((by.elements + kBlock * kWarpsPerBlock - 1) / (kBlock * kWarpsPerBlock));
  const auto kernel = by.bits == 8 ? &quantize_kernel<8> : &quantize_kernel<4>;
  LOCKSTEP_LAUNCH(kernel, blocks, kWarpsPerBlock * kLanes, static_cast<cudaStream_t>(stream), by);
  return cudaGetLastError();
}

int cuda_dequantize(const CudaDequantization& by, void* stream) {
  int error = 0;
  if (is_empty_or_wrong(by, error)) return error;
  constexpr int kThreads = 256;
  constexpr std::int64_t kMostBlocks = 4096;
  const auto wanted = (by.elements + kThreads - 1) / kThreads;
  const auto blocks = static_cast<unsigned>(wanted < kMostBlocks ? wanted : kMostBlocks);
  const auto kernel = by.bits == 8 ? &dequantize_kernel<8> : &dequantize_kernel<4>;
  LOCKSTEP_LAUNCH(kernel, blocks, kThreads, static_cast<cudaStream_t>(stream), by);
  return cudaGetLastError();
}

}  // namespace lockstep::detail
