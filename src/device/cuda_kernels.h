// Kernels of our own for NVIDIA's GPUs, as liblockstep_cuda.so offers them: free of torch and of CUDA's
// headers. Pointers are of the device unless a comment says otherwise, `stream` is CUDA's. All return an
// error of CUDA's runtime, 0 for none, and block nothing.
//
// All are bound by memory: what a kernel costs is the bytes that stand beside it, over those per second of a
// copy on the device, once there is a million elements or so; below, it is a launch, a few microseconds.
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

/// A step of Adam or AdamW: gradients times grad_scale, moments, parameter and copy in one pass. Costs 28
/// bytes an element of float32 (26 with gradients of 16 bits), and 2 more for a copy.
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

/// Copies of many tensors by few launches, such as of gradients into a bucket or a flat shard: to[i] =
/// from[i] * scale, which is rounded to float32 (or float64 where `from_type` is) first. Costs the bytes of
/// both types an element, and those of `to_type` once more where it adds; a launch has up to 48 tensors,
/// where operators of LibTorch have one.
struct CudaCopies {
  const CudaCopy* copies = nullptr;  ///< on the host
  int count = 0;
  CudaType from_type = CudaType::kFloat32;
  CudaType to_type = CudaType::kFloat32;
  const double* scale = nullptr;  ///< null: 1
  bool adds = false;              ///< to[i] += instead, in the type in which it is scaled
};

/// output[i] = the sum of rows[r * size + i] over all rows r, in the tree of reduce_rows(), which combines
/// those of 16 bits in float32; divided by the number of rows where `is_average`. Costs row_count + 1
/// elements for each of the output.
struct CudaRowSum {
  const void* rows = nullptr;
  void* output = nullptr;
  std::int64_t size = 0;
  int row_count = 0;  ///< at most kMostCudaRows
  CudaType type = CudaType::kFloat32;
  bool is_average = false;
};
inline constexpr int kMostCudaRows = 64;

/// quantize() of parallel/sharded/block_quantizer.h, to the same bits: blocks of 256 numbers with a scale
/// each. Of a block whose scale is NaN, as one of its numbers is not finite, the codes are any. Costs 4 +
/// bits / 8 bytes an element, and 1/64.
struct CudaQuantization {
  const float* values = nullptr;
  std::int64_t elements = 0;
  std::uint8_t* codes = nullptr;
  float* scales = nullptr;
  int bits = 8;  ///< 8 or 4
};

/// dequantize() and add_dequantized() of that file, to the same bits. Costs as CudaQuantization, and 4 bytes
/// more where it adds.
struct CudaDequantization {
  const std::uint8_t* codes = nullptr;
  const float* scales = nullptr;
  std::int64_t elements = 0;
  float* values = nullptr;
  int bits = 8;
  bool adds = false;
};

/// Cross-entropy of rows of scores over many classes, which are read as they are, float32 or 16 bits: no
/// probabilities in float32 are ever written. Of a target that is `ignored` the loss is 0. Costs one reading
/// of the scores.
struct CudaCrossEntropy {
  const void* scores = nullptr;  ///< rows x classes, contiguous
  CudaType type = CudaType::kFloat32;
  const std::int64_t* targets = nullptr;  ///< of each row, 0 <= target < classes, or `ignored`
  std::int64_t rows = 0, classes = 0, ignored = -100;
  float* losses = nullptr;    ///< of each row
  float* log_sums = nullptr;  ///< of each row, log(sum(exp(scores))): for the gradient
};

/// The gradient of the sum of the losses times `scale`: (softmax - 1 at the target) * scale, 0 in rows that
/// are ignored. Costs a reading and a writing of the scores; `gradient` may be `scores`. With the forward
/// pass these are three passes over the scores, where LibTorch's log_softmax, nll_loss and their backwards
/// take four in the type of the scores, and eight where that is 16 bits and autocast makes it float32 first.
struct CudaCrossEntropyGradient {
  CudaCrossEntropy forward = {};
  const float* scale = nullptr;  ///< on the device; null: 1
  void* gradient = nullptr;      ///< as `scores`
};

/// Null where the library was built without them.
struct CudaKernels {
  int (*adam_step)(const CudaAdamStep& step, void* stream) = nullptr;
  int (*copy_scaled)(const CudaCopies& copies, void* stream) = nullptr;
  int (*sum_rows)(const CudaRowSum& sum, void* stream) = nullptr;
  int (*quantize)(const CudaQuantization& quantization, void* stream) = nullptr;
  int (*dequantize)(const CudaDequantization& dequantization, void* stream) = nullptr;
  int (*cross_entropy)(const CudaCrossEntropy& entropy, void* stream) = nullptr;
  int (*cross_entropy_gradient)(const CudaCrossEntropyGradient& gradient, void* stream) = nullptr;
};

}  // namespace lockstep::detail
