// The kernels of device/cuda_kernels.h. Compiled without contraction (-fmad=false), with divisions and roots
// that round as IEEE says, which is nvcc's default.
#include <cstdint>

#include "cuda/kernel_types.cuh"
#include "cuda/kernels.h"

namespace lockstep::detail {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kElementsPerBlock = 16 * kThreads;
constexpr int kTensorsPerLaunch = 48;  // what the arguments of a launch hold

/// The tensors of one launch. Block b works on the part of tensor i with first_block[i] <= b.
template <class Item>
struct Batch {
  Item items[kTensorsPerLaunch];
  int first_block[kTensorsPerLaunch + 1];
  int count;
};

template <class Item>
__device__ int item_of_block(const Batch<Item>& batch, int block) {
  int item = 0;
  while (item + 1 < batch.count && batch.first_block[item + 1] <= block) ++item;
  return item;
}

struct AdamArguments {
  const double* grad_scale;
  const float* found_inf;
  const double* lr_on_device;
  double lr, beta1, beta2, eps, weight_decay;
  bool is_decoupled, is_maximized, has_bias_correction;
};

template <class T>
struct AdamNumbers {
  T scale, l2, decay, beta1, rest1, beta2, rest2, step_size, root_bias2, eps;
};

// AdamSteps::at().
template <class T>
__device__ AdamNumbers<T> adam_numbers(const AdamArguments& by, double step) {
  const double lr = by.lr_on_device != nullptr ? *by.lr_on_device : by.lr;
  const double scale = by.grad_scale != nullptr ? *by.grad_scale : 1.0;
  const double bias1 = by.has_bias_correction ? 1.0 - pow(by.beta1, step) : 1.0;
  const double bias2 = by.has_bias_correction ? 1.0 - pow(by.beta2, step) : 1.0;
  return {static_cast<T>(by.is_maximized ? -scale : scale),
          static_cast<T>(by.is_decoupled ? 0.0 : by.weight_decay),
          static_cast<T>(by.is_decoupled ? 1.0 - lr * by.weight_decay : 1.0),
          static_cast<T>(by.beta1),
          static_cast<T>(1.0 - by.beta1),
          static_cast<T>(by.beta2),
          static_cast<T>(1.0 - by.beta2),
          static_cast<T>(lr / bias1),
          static_cast<T>(sqrt(bias2)),
          static_cast<T>(by.eps)};
}

template <class T, class Gradient, class Copy>
__global__ void adam_kernel(const Batch<CudaAdamTensor> batch, const AdamArguments by) {
  if (by.found_inf != nullptr && *by.found_inf != 0.0F) return;
  const int item = item_of_block(batch, static_cast<int>(blockIdx.x));
  const auto& tensor = batch.items[item];
  __shared__ AdamNumbers<T> shared;
  if (threadIdx.x == 0) shared = adam_numbers<T>(by, *tensor.step);
  __syncthreads();
  const auto n = shared;
  auto* const param = static_cast<T*>(tensor.param);
  const auto* const gradient = static_cast<const Gradient*>(tensor.gradient);
  auto* const exp_avg = static_cast<T*>(tensor.exp_avg);
  auto* const exp_avg_sq = static_cast<T*>(tensor.exp_avg_sq);
  auto* const copy = static_cast<Copy*>(tensor.copy);
  const auto begin = (static_cast<int>(blockIdx.x) - batch.first_block[item]) * kElementsPerBlock;
  const auto end = begin + kElementsPerBlock < tensor.size ? begin + kElementsPerBlock : tensor.size;
  for (auto i = begin + threadIdx.x; i < end; i += kThreads) {
    const T before = param[i];
    T g = n.scale * as<T>(gradient[i]);
    if (n.l2 != 0) g += n.l2 * before;
    const T m = n.beta1 * exp_avg[i] + n.rest1 * g;
    const T v = n.beta2 * exp_avg_sq[i] + n.rest2 * g * g;
    const T after = before * n.decay - n.step_size * m / (sqrt(v) / n.root_bias2 + n.eps);
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    param[i] = after;
    if (copy != nullptr) copy[i] = as<Copy>(after);
  }
}

template <class From, class To>
__global__ void copy_kernel(const Batch<CudaCopy> batch, const double* scale, bool adds) {
  using Number = typename Wide<From>::Type;
  const int item = item_of_block(batch, static_cast<int>(blockIdx.x));
  const auto& copy = batch.items[item];
  const auto* const from = static_cast<const From*>(copy.from);
  auto* const to = static_cast<To*>(copy.to);
  const auto factor = scale != nullptr ? static_cast<Number>(*scale) : Number(1);
  const auto begin = (static_cast<int>(blockIdx.x) - batch.first_block[item]) * kElementsPerBlock;
  const auto end = begin + kElementsPerBlock < copy.size ? begin + kElementsPerBlock : copy.size;
  for (auto i = begin + threadIdx.x; i < end; i += kThreads) {
    const auto scaled = as<Number>(from[i]) * factor;
    to[i] = as<To>(adds ? as<Number>(to[i]) + scaled : scaled);
  }
}

// A tree over neighbours, as reduce_rows() has it: rows are read in their order, and a sum of 2^k rows is
// added to its neighbour as soon as that is there.
template <class T>
__global__ void row_sum_kernel(const CudaRowSum sum) {
  using Number = typename Wide<T>::Type;
  const auto* const rows = static_cast<const T*>(sum.rows);
  auto* const output = static_cast<T*>(sum.output);
  const auto stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (auto i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < sum.size; i += stride) {
    Number level[7];  // sums of 1, 2, 4, ... rows that wait for their right neighbour
    for (int row = 0; row < sum.row_count; ++row) {
      auto value = as<Number>(rows[row * sum.size + i]);
      int at = 0;
      for (int rest = row; (rest & 1) != 0; rest >>= 1) value = level[at++] + value;
      level[at] = value;
    }
    // Those that wait have no right neighbour: from the smallest up, each is added to the next larger.
    Number all = 0;
    bool is_begun = false;
    for (int at = 0; at < 7; ++at) {
      if ((sum.row_count >> at & 1) == 0) continue;
      all = is_begun ? level[at] + all : level[at];
      is_begun = true;
    }
    output[i] = as<T>(sum.is_average ? all / static_cast<Number>(sum.row_count) : all);
  }
}

int blocks_of(std::int64_t size) {
  return static_cast<int>((size + kElementsPerBlock - 1) / kElementsPerBlock);
}

// Calls launch(batch, blocks) for as many at once as go into the arguments of a launch.
template <class Item, class Launch>
int in_batches(const Item* items, int count, const Launch& launch) {
  for (int at = 0; at < count;) {
    Batch<Item> batch{};
    int blocks = 0;
    for (; at < count && batch.count < kTensorsPerLaunch; ++at) {
      if (items[at].size == 0) continue;
      batch.items[batch.count] = items[at];
      batch.first_block[batch.count++] = blocks;
      blocks += blocks_of(items[at].size);
    }
    if (blocks == 0) continue;
    launch(batch, blocks);
    if (const auto error = cudaGetLastError(); error != cudaSuccess) return error;
  }
  return 0;
}

template <class T, class Gradient, class Copy>
int launch_adam(const CudaAdamStep& step, cudaStream_t stream) {
  const AdamArguments by{step.grad_scale,
                         step.found_inf,
                         step.lr_on_device,
                         step.lr,
                         step.beta1,
                         step.beta2,
                         step.eps,
                         step.weight_decay,
                         step.is_decoupled,
                         step.is_maximized,
                         step.has_bias_correction};
  return in_batches(step.tensors, step.count, [&](const Batch<CudaAdamTensor>& batch, int blocks) {
    const auto kernel = &adam_kernel<T, Gradient, Copy>;
    LOCKSTEP_LAUNCH(kernel, blocks, kThreads, stream, batch, by);
  });
}

}  // namespace

int cuda_adam_step(const CudaAdamStep& step, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  return with_type(step.gradient_type, [&](auto gradient) -> int {
    using Gradient = decltype(gradient);
    if (step.type == CudaType::kFloat64) return launch_adam<double, Gradient, __nv_bfloat16>(step, on);
    if (step.type != CudaType::kFloat32) return cudaErrorInvalidValue;
    if (step.copy_type == CudaType::kFloat16) return launch_adam<float, Gradient, __half>(step, on);
    return launch_adam<float, Gradient, __nv_bfloat16>(step, on);
  });
}

int cuda_copy_scaled(const CudaCopies& copies, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  return with_type(copies.from_type, [&](auto from) -> int {
    using From = decltype(from);
    return with_type(copies.to_type, [&](auto to) -> int {
      using To = decltype(to);
      return in_batches(copies.copies, copies.count, [&](const Batch<CudaCopy>& batch, int blocks) {
        const auto kernel = &copy_kernel<From, To>;
        LOCKSTEP_LAUNCH(kernel, blocks, kThreads, on, batch, copies.scale, copies.adds);
      });
    });
  });
}

int cuda_sum_rows(const CudaRowSum& sum, void* stream) {
  if (sum.row_count < 1 || sum.row_count > kMostCudaRows) return cudaErrorInvalidValue;
  if (sum.size == 0) return 0;
  constexpr std::int64_t kMostBlocks = 4096;
  const auto wanted = (sum.size + kThreads - 1) / kThreads;
  const auto blocks = static_cast<unsigned>(wanted < kMostBlocks ? wanted : kMostBlocks);
  return with_type(sum.type, [&](auto element) -> int {
    const auto kernel = &row_sum_kernel<decltype(element)>;
    LOCKSTEP_LAUNCH(kernel, blocks, kThreads, static_cast<cudaStream_t>(stream), sum);
    return cudaGetLastError();
  });
}

}  // namespace lockstep::detail
