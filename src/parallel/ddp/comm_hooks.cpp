#include <lockstep/parallel/ddp/comm_hook.h>

#include "parallel/ddp/average.h"
#include "parallel/ddp/bucket_layout.h"

namespace lockstep {
namespace {

// A bucket in another dtype, for the hook inside of a wrapper.
class CastBucket final : public GradBucket {
 public:
  CastBucket(const GradBucket& original, at::ScalarType dtype)
      : original_(original), buffer_(original.buffer().to(dtype)) {}

  std::size_t index() const override { return original_.index(); }
  bool is_last() const override { return original_.is_last(); }
  const at::Tensor& buffer() const override { return buffer_; }
  std::vector<at::Tensor> parameters() const override { return original_.parameters(); }
  int divisor() const override { return original_.divisor(); }

  std::vector<at::Tensor> gradients() const override { return detail::gradient_views(buffer_, parameters()); }

 private:
  const GradBucket& original_;
  at::Tensor buffer_;
};

CommHook compress_wrapper(CommHook inner, at::ScalarType dtype) {
  return [inner = std::move(inner), dtype](const GradBucket& bucket,
                                           const Communicator& comm) -> FinishReduction {
    auto finish = inner(CastBucket(bucket, dtype), comm);
    if (!finish) return finish;
    return [finish = std::move(finish), buffer = bucket.buffer()]() -> at::Tensor {
      buffer.copy_(finish());
      return buffer;
    };
  };
}

}  // namespace

GradBucket::~GradBucket() = default;

// Where the divisor is the number of ranks, the collective divides as it sums.
detail::PendingAverage::PendingAverage(at::Tensor tensor, int divisor, const Communicator& comm)
    : tensor_(std::move(tensor)), divisor_(divisor == comm.size() ? std::nullopt : std::optional(divisor)) {
  work_ = comm.all_reduce_async(tensor_, divisor_ ? ReduceOp::kSum : ReduceOp::kAvg);
}

at::Tensor detail::PendingAverage::finish() const {
  work_.wait();
  return divisor_ ? tensor_.div_(*divisor_) : tensor_;
}

CommHook allreduce_hook() {
  return [](const GradBucket& bucket, const Communicator& comm) {
    return [average = detail::PendingAverage(bucket.buffer(), bucket.divisor(), comm)] {
      return average.finish();
    };
  };
}

CommHook fp16_compress_wrapper(CommHook inner) { return compress_wrapper(std::move(inner), at::kHalf); }
CommHook bf16_compress_wrapper(CommHook inner) { return compress_wrapper(std::move(inner), at::kBFloat16); }
CommHook fp16_compress_hook() { return fp16_compress_wrapper(allreduce_hook()); }
CommHook bf16_compress_hook() { return bf16_compress_wrapper(allreduce_hook()); }

CommHook noop_hook() {
  return [](const GradBucket& bucket, const Communicator&) {
    return [buffer = bucket.buffer()] { return buffer; };
  };
}

}  // namespace lockstep
