// What the kernels of src/cuda need of CUDA's language, on CPUs: the threads of a block are fibers of one
// thread that go from one place where they meet to the next, block after block. For the values of kernels,
// not for races.
#pragma once

#include <math.h>

#include <bit>
#include <cstdint>
#include <functional>

#define __global__
#define __device__
#define __shared__ static  // one block runs at a time

#define LOCKSTEP_LAUNCH(kernel, blocks, threads, stream, ...) \
  ((void)(stream), host_cuda::run((blocks), (threads), [&] { (kernel)(__VA_ARGS__); }))

struct HostDim {
  unsigned x;
};
inline HostDim threadIdx, blockIdx, blockDim, gridDim;

using cudaStream_t = void*;
inline constexpr int cudaSuccess = 0, cudaErrorInvalidValue = 1;
inline int cudaGetLastError() { return cudaSuccess; }

namespace host_cuda {

/// Calls `thread` for each thread of each block.
void run(unsigned blocks, unsigned threads, const std::function<void()>& thread);

/// Lets all other threads of the block come here, too.
void meet();

/// The bits that another lane of the warp gave to the same call.
std::uint32_t exchanged(std::uint32_t mine, unsigned lane_mask);

}  // namespace host_cuda

inline void __syncthreads() { host_cuda::meet(); }
template <class T>
T __shfl_xor_sync(unsigned /*all*/, T mine, int lane_mask) {
  return std::bit_cast<T>(
      host_cuda::exchanged(std::bit_cast<std::uint32_t>(mine), static_cast<unsigned>(lane_mask)));
}
inline int __float_as_int(float value) { return std::bit_cast<int>(value); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline int max(int a, int b) { return a > b ? a : b; }
