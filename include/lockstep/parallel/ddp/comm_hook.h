// Comm hooks: what happens to a bucket of gradients between this rank and the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/base/options.h>
#include <lockstep/comm/communicator.h>

namespace lockstep {

// The options of PowerSGD.

/// PowerSGD's options, named as those of PyTorch's PowerSGDState.
struct PowerSgd {
  int matrix_approximation_rank = 1;  ///< rank of the approximation: more is closer and sends more
  int start_powerSGD_iter = 1000;     ///< steps that average plainly before compression starts, >= 2
  double min_compression_rate = 2;    ///< gradients that would not shrink by this factor are sent as they are
  bool use_error_feedback = true;     ///< adds what compression lost to the next step's gradients
  bool warm_start = true;             ///< starts from the approximation of the step before
  double orthogonalization_epsilon = 0;  ///< added to norms when orthogonalizing; 0: QR decomposition
  std::int64_t random_seed = 0;          ///< of the first approximation, equal on all ranks
};

LOCKSTEP_API void describe(OptionVisitor& visitor, PowerSgd& options);

/// Gradients that are reduced at once, as a comm hook sees them. Valid during the call of the hook only;
/// the tensors live on.
class LOCKSTEP_API GradBucket {
 public:
  virtual ~GradBucket();
  /// Position in the order of reduction, from 0. Buckets change once, after the first averaged backward
  /// (static_graph: the second), and anew after a backward that failed: keep memory by parameter.
  virtual std::size_t index() const = 0;
  /// Whether this is the last bucket of the step.
  virtual bool is_last() const = 0;
  /// All gradients of the bucket, flat; this rank's, not divided. May be written to.
  virtual const at::Tensor& buffer() const = 0;
  /// Views of buffer(), one per parameter, in its shape, and with its strides where these leave no gaps.
  virtual std::vector<at::Tensor> gradients() const = 0;
  /// The parameters that the gradients belong to.
  virtual std::vector<at::Tensor> parameters() const = 0;
  /// What sums over ranks are divided by: their number or, under Join, the number of those with data.
  virtual int divisor() const = 0;
};

/// Waits for a bucket's reduction and returns its averaged gradients, as many as in buffer(): best buffer()
/// itself; other tensors are copied into it unless they are flat, of its dtype and fill their memory.
using FinishReduction = std::function<at::Tensor()>;

/// Starts the reduction of `bucket` over the ranks of `comm`. Runs on the thread of backward, while
/// backward goes on: it should issue asynchronous collectives and return. All ranks see the same buckets
/// in the same order. What it returns is called once when backward is over, bucket by bucket in that
/// order, and may wait and communicate again. What either throws, backward throws; what a hook of one's own
/// has kept by then is its own to clear.
using CommHook = std::function<FinishReduction(const GradBucket& bucket, const Communicator& comm)>;

/// Averages: sums over ranks, then divides. The default. (PyTorch's divides first, which rounds once
/// more, and differently from what sharded strategies do.)
LOCKSTEP_API CommHook allreduce_hook();

/// Sends gradients as float16 or bfloat16: half the bytes, fewer digits. As PyTorch's hooks of these names,
/// but sums in float32 and divides before rounding back.
LOCKSTEP_API CommHook fp16_compress_hook();
/// Gradients travel as bfloat16.
LOCKSTEP_API CommHook bf16_compress_hook();

/// Runs `inner` on the bucket cast to float16 or bfloat16, and casts its result back. `inner` sees the
/// cast buffer and gradients. As PyTorch's fp16_compress_wrapper and bf16_compress_wrapper.
LOCKSTEP_API CommHook fp16_compress_wrapper(CommHook inner);
/// Lets `inner` work on bfloat16.
LOCKSTEP_API CommHook bf16_compress_wrapper(CommHook inner);

/// Sends a low-rank approximation of each gradient that is a matrix (Vogels et al., 2019), as PyTorch's
/// powerSGD_hook. Keeps, per parameter, the approximation's error and starting point; drops both after a
/// step whose gradients were not finite. One hook serves one engine; only ddp_comm_hook powerSGD, which
/// makes its own, has them in DdpEngine::state(). Sums of half precision gradients stay in their dtype.
LOCKSTEP_API CommHook power_sgd_hook(const PowerSgd& options = {});

/// No communication: every rank keeps its own gradients. For measuring what communication costs.
LOCKSTEP_API CommHook noop_hook();

}  // namespace lockstep
