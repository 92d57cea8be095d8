// A bucket of gradients, which are averaged at once: where they lie, or in a flat tensor that a hook sees.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/comm/communicator.h>
#include <lockstep/parallel/ddp/comm_hook.h>

#include "device/own_kernels.h"
#include "parallel/module_states.h"

namespace lockstep::detail {

/// The indices of the parameters of each bucket, in the order of reduction.
using BucketPlan = std::vector<std::vector<std::size_t>>;

/// Bytes at which a bucket is closed: the first of a dtype and device, and all later ones.
struct BucketCaps {
  std::int64_t first;
  std::int64_t rest;
};

/// Cuts the parameters, taken in the order `indices`, into buckets of one dtype and device each.
/// Source: c10d::compute_bucket_assignment_by_size.
BucketPlan plan_buckets(const std::vector<NamedTensor>& trained, std::span<const std::size_t> indices,
                        const BucketCaps& caps);

/// How the gradients of a backward are averaged. Refers to what it was made of.
struct Averaging {
  const Communicator& comm;
  const CommHook& hook;     ///< null: gradients are averaged where they lie
  int divisor = 1;          ///< of their sums
  std::size_t buckets = 0;  ///< how many there are
};

/// Between begin() and finish() it goes through one reduction. Not thread-safe.
class GradientBucket {
 public:
  enum class Memory {
    kNone,  ///< gradients are averaged where they lie: on the CPU, by no hook
    kFlat,  ///< they are copied to a flat tensor, and back
    kViews  ///< they become views of the flat tensor
  };

  /// Number `index` in the order of reduction, of the gradients of `parameters`.
  GradientBucket(std::size_t index, std::vector<at::Tensor> parameters, Memory memory);

  std::int64_t bytes() const { return bytes_; }

  /// Before a backward: nothing has come yet. Unless `counts_own`, zeros are averaged instead of this rank's
  /// gradients.
  void begin(bool counts_own = true);

  /// The gradient of parameter number `place` is as it is to be averaged. Where there is none, that is zeros.
  void take(std::size_t place);

  /// Whether those of all parameters are.
  bool is_complete() const { return missing_ == 0; }

  /// Starts the reduction of what was taken. Collective, asynchronous.
  void start(const Averaging& averaging);

  /// The same, but blocks until it is done; of gradients that are averaged where they lie.
  void run(const Averaging& averaging);

  /// Blocks until the reduction is done. @throws CommError for a hook's result that does not fit
  void await(const Averaging& averaging);

  /// Then, of each parameter: makes the average its gradient; or leaves what it has, where no rank uses it.
  void keep(std::size_t place, bool is_used);

  /// After the last of them.
  void end_keeping();

 private:
  class View;

  void note_copy(const at::Tensor& from, const at::Tensor& to);
  void copy_noted();
  void collect_pieces();
  void divide(const Averaging& averaging);

  std::size_t index_;
  std::vector<at::Tensor> parameters_;
  Memory memory_;
  std::int64_t bytes_ = 0;
  std::size_t missing_ = 0;
  bool counts_own_ = true;

  // Where gradients are averaged as they lie: what the collective gets, and, by parameter, the tensors that
  // stand for a gradient that is not there or lies in another way.
  std::vector<at::Tensor> pieces_, substitutes_;
  Work work_;

  at::Tensor buffer_;
  std::vector<at::Tensor> views_;  // of it, by parameter
  FinishReduction finish_;
  std::vector<at::Tensor> averages_;  // by parameter

  // What waits for more, to be done at once: copies, and gradients that become views behind them.
  std::vector<TensorCopy> copies_;
  std::vector<std::size_t> viewed_;
};

}  // namespace lockstep::detail
