// Kernels of our own for NVIDIA's GPUs, as liblockstep_cuda.so offers them: free of torch and of CUDA's
// headers. Pointers are of the device unless a comment says otherwise, `stream` is CUDA's. All return an
// error of CUDA's runtime, 0 for none, and block nothing.
//
// Each operation is rounded on its own, without multiply-add, so that elements have the bits of the CPU's
// kernels (optim/kernels.h, comm/algorithms/reduce_rows.cpp).
#pragma once

#include <cstdint>

namespace lockstep::detail {

enum class CudaType { kFloat32, kFloat64, kBFloat16, kFloat16 };

/// A parameter with its gradient and state, each contiguous.
struct CudaAdamTensor {
  void* param = nullptr;
  const void* gradient = nullptr;
  void* exp_avg = nullptr;
  void* exp_avg_sq = nullptr;
  void* copy = nullptr;         ///< what becomes of the parameter, in 16 bits, too; null: nowhere
  const float* step = nullptr;  ///< number of this step, from 1
  std::int64_t size = 0;
};

/// A step of Adam or AdamW: gradients times grad_scale, moments, parameter and copy in one pass.
struct CudaAdamStep {
  const CudaAdamTensor* tensors = nullptr;  ///< on the host
  int count = 0;
  CudaType type = CudaType::kFloat32;           ///< of parameters and state: float32 or float64
  CudaType gradient_type = CudaType::kFloat32;  ///< any
  CudaType copy_type = CudaType::kBFloat16;     ///< of 16 bits
  const double* grad_scale = nullptr;           ///< null: 1
  const float* found_inf = nullptr;             ///< not 0: nothing is written; null: 0
  const double* lr_on_device = nullptr;         ///< in place of lr; may be null
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  bool is_decoupled = true, is_maximized = false, has_bias_correction = true;
};

/// Elements that go to another place, of another type.
struct CudaCopy {
  const void* from = nullptr;
  void* to = nullptr;
  std::int64_t size = 0;
};

/// Copies of many tensors by few launches: to[i] = from[i] * scale, which is rounded to float32 (or float64
/// where `from_type` is) first.
struct CudaCopies {
  const CudaCopy* copies = nullptr;  ///< on the host
  int count = 0;
  CudaType from_type = CudaType::kFloat32;
  CudaType to_type = CudaType::kFloat32;
  const double* scale = nullptr;  ///< null: 1
};

/// output[i] = the sum of rows[r * size + i] over all rows r, in the tree of reduce_rows(), which combines
/// those of 16 bits in float32; divided by the number of rows where `is_average`.
struct CudaRowSum {
  const void* rows = nullptr;
  void* output = nullptr;
  std::int64_t size = 0;
  int row_count = 0;  ///< at most kMostCudaRows
  CudaType type = CudaType::kFloat32;
  bool is_average = false;
};
inline constexpr int kMostCudaRows = 64;

/// Null where the library was built without them.
struct CudaKernels {
  int (*adam_step)(const CudaAdamStep& step, void* stream) = nullptr;
  int (*copy_scaled)(const CudaCopies& copies, void* stream) = nullptr;
  int (*sum_rows)(const CudaRowSum& sum, void* stream) = nullptr;
};

}  // namespace lockstep::detail
