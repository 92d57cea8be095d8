// Cross-entropy over many classes: a block of threads has a row, and reads it once.
#include <cstdint>

#include "cuda/kernel_types.cuh"
#include "cuda/kernels.h"

namespace lockstep::detail {
namespace {

constexpr int kThreads = 512;
constexpr int kLanes = 32;

// exp() of numbers that were seen, relative to the largest of them: sum * exp(largest).
struct ExpSum {
  float largest, sum;
};

// Both may be of nothing, whose largest is minus infinity.
__device__ ExpSum joined(ExpSum a, ExpSum b) {
  const float largest = a.largest > b.largest ? a.largest : b.largest;
  if (largest == -INFINITY) return {largest, 0.0F};
  return {largest, a.sum * expf(a.largest - largest) + b.sum * expf(b.largest - largest)};
}

__device__ ExpSum joined_in_warp(ExpSum mine) {
  for (int other = kLanes / 2; other > 0; other /= 2) {
    const ExpSum its{__shfl_xor_sync(0xffffffffU, mine.largest, other),
                     __shfl_xor_sync(0xffffffffU, mine.sum, other)};
    mine = joined(mine, its);
  }
  return mine;
}

// log(sum(exp(row))), to thread 0.
template <class T>
__device__ float log_sum_of(const T* row, std::int64_t classes) {
  __shared__ ExpSum of_warps[kThreads / kLanes];
  ExpSum mine{-INFINITY, 0.0F};
  for (std::int64_t i = threadIdx.x; i < classes; i += kThreads) {
    const float score = as<float>(row[i]);
    if (score > mine.largest) {
      mine.sum = mine.sum * expf(mine.largest - score) + 1.0F;
      mine.largest = score;
    } else if (score != -INFINITY) {
      mine.sum += expf(score - mine.largest);  // NaN stays
    }
  }
  mine = joined_in_warp(mine);
  const int warp = static_cast<int>(threadIdx.x) / kLanes, lane = static_cast<int>(threadIdx.x) % kLanes;
  if (lane == 0) of_warps[warp] = mine;
  __syncthreads();
  const ExpSum nothing{-INFINITY, 0.0F};
  const ExpSum all = joined_in_warp(lane < kThreads / kLanes ? of_warps[lane] : nothing);
  return all.largest + logf(all.sum);
}

template <class T>
__global__ void loss_kernel(const CudaCrossEntropy by) {
  const auto row = static_cast<std::int64_t>(blockIdx.x);
  const auto* const scores = static_cast<const T*>(by.scores) + row * by.classes;
  const float log_sum = log_sum_of(scores, by.classes);
  if (threadIdx.x != 0) return;
  const auto target = by.targets[row];
  by.log_sums[row] = log_sum;
  by.losses[row] = target == by.ignored ? 0.0F : log_sum - as<float>(scores[target]);
}

// A row may be written where it is read: each thread reads its own elements alone.
template <class T>
__global__ void gradient_kernel(const CudaCrossEntropyGradient by) {
  const auto row = static_cast<std::int64_t>(blockIdx.x);
  const auto& forward = by.forward;
  const auto* const scores = static_cast<const T*>(forward.scores) + row * forward.classes;
  auto* const gradient = static_cast<T*>(by.gradient) + row * forward.classes;
  const auto target = forward.targets[row];
  const float scale = by.scale != nullptr ? *by.scale : 1.0F;
  const float log_sum = forward.log_sums[row];
  for (std::int64_t i = threadIdx.x; i < forward.classes; i += kThreads) {
    const float probability = expf(as<float>(scores[i]) - log_sum);
    const float value = (i == target ? probability - 1.0F : probability) * scale;
    gradient[i] = as<T>(target == forward.ignored ? 0.0F : value);
  }
}

}  // namespace

int cuda_cross_entropy(const CudaCrossEntropy& by, void* stream) {
  if (by.type == CudaType::kFloat64) return cudaErrorInvalidValue;
  if (by.rows == 0) return 0;
  return with_type(by.type, [&](auto score) -> int {
    const auto kernel = &loss_kernel<decltype(score)>;
    LOCKSTEP_LAUNCH(kernel, static_cast<unsigned>(by.rows), kThreads, static_cast<cudaStream_t>(stream), by);
    return cudaGetLastError();
  });
}

int cuda_cross_entropy_gradient(const CudaCrossEntropyGradient& by, void* stream) {
  if (by.forward.type == CudaType::kFloat64) return cudaErrorInvalidValue;
  if (by.forward.rows == 0) return 0;
  return with_type(by.forward.type, [&](auto score) -> int {
    const auto kernel = &gradient_kernel<decltype(score)>;
    LOCKSTEP_LAUNCH(kernel, static_cast<unsigned>(by.forward.rows), kThreads,
                    static_cast<cudaStream_t>(stream), by);
    return cudaGetLastError();
  });
}

}  // namespace lockstep::detail
