// What the kernels have in common: element types, conversions, launches. For the compiler of CUDA, and for
// tests/cuda/host_cuda, which runs kernels on CPUs.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "device/cuda_kernels.h"

// Issues `kernel`, the address of one, to `stream`.
#ifndef LOCKSTEP_LAUNCH
#define LOCKSTEP_LAUNCH(kernel, blocks, threads, stream, ...) \
  (kernel)<<<(blocks), (threads), 0, (stream)>>>(__VA_ARGS__)
#endif

namespace lockstep::detail {
namespace {

template <class To>
__device__ To as(float value) {
  return static_cast<To>(value);
}
template <>
__device__ __nv_bfloat16 as<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ __half as<__half>(float value) {
  return __float2half_rn(value);
}
// As LibTorch converts: float64 goes to 16 bits by way of float32.
template <class To>
__device__ To as(double value) {
  return static_cast<To>(value);
}
template <>
__device__ __nv_bfloat16 as<__nv_bfloat16>(double value) {
  return __float2bfloat16_rn(static_cast<float>(value));
}
template <>
__device__ __half as<__half>(double value) {
  return __float2half_rn(static_cast<float>(value));
}
template <class To>
__device__ To as(__nv_bfloat16 value) {
  return as<To>(__bfloat162float(value));
}
template <class To>
__device__ To as(__half value) {
  return as<To>(__half2float(value));
}

/// What numbers of a type are combined as.
template <class T>
struct Wide {
  using Type = float;
};
template <>
struct Wide<double> {
  using Type = double;
};

template <class Body>
int with_type(CudaType type, const Body& body) {
  switch (type) {
    case CudaType::kFloat32:
      return body(float());
    case CudaType::kFloat64:
      return body(double());
    case CudaType::kBFloat16:
      return body(__nv_bfloat16());
    case CudaType::kFloat16:
      return body(__half());
  }
  return cudaErrorInvalidValue;
}

}  // namespace
}  // namespace lockstep::detail
