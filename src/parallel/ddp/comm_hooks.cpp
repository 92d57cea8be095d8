// The built-in comm hooks but PowerSGD's, and the choice among them by options.
#include "parallel/ddp/comm_hooks.h"

#include <lockstep/parallel/ddp/comm_hook.h>

namespace lockstep::detail {

std::vector<at::Tensor> gradient_views(const at::Tensor& buffer, const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> views;
  std::int64_t begin = 0;
  for (const auto& parameter : parameters) {
    const auto part = buffer.narrow(0, begin, parameter.numel());
    const bool is_dense = parameter.is_non_overlapping_and_dense();
    views.push_back(is_dense ? part.as_strided(parameter.sizes(), parameter.strides())
                             : part.view(parameter.sizes()));
    begin += parameter.numel();
  }
  return views;
}

namespace {

CommHook built_in(const Ddp& options, const std::shared_ptr<PowerSgdState>& power_sgd) {
  switch (options.ddp_comm_hook) {
    case DdpCommHook::kAllreduce:
      return allreduce_hook();
    case DdpCommHook::kFp16Compress:
      return fp16_compress_hook();
    case DdpCommHook::kBf16Compress:
      return bf16_compress_hook();
    case DdpCommHook::kPowerSgd:
      return power_sgd_hook(power_sgd);
    case DdpCommHook::kNoop:
      return noop_hook();
  }
  return allreduce_hook();
}

template <class Enum>
std::string name_of(const EnumOption<Enum>& value) {
  return OptionType<Enum>::print(value);
}

}  // namespace

std::shared_ptr<PowerSgdState> make_power_sgd_state(const Ddp& options) {
  if (options.comm_hook || options.ddp_comm_hook != DdpCommHook::kPowerSgd) return nullptr;
  return std::make_shared<PowerSgdState>(options.ddp_comm_state);
}

CommHook make_comm_hook(const Ddp& options, const std::shared_ptr<PowerSgdState>& power_sgd) {
  auto hook = options.comm_hook ? options.comm_hook : built_in(options, power_sgd);
  switch (options.ddp_comm_wrapper) {
    case DdpCommWrapper::kNone:
      return hook;
    case DdpCommWrapper::kFp16Compress:
      return fp16_compress_wrapper(std::move(hook));
    case DdpCommWrapper::kBf16Compress:
      return bf16_compress_wrapper(std::move(hook));
  }
  return hook;
}

bool averages_plainly(const Ddp& options) {
  return !options.comm_hook && options.ddp_comm_hook == DdpCommHook::kAllreduce &&
         options.ddp_comm_wrapper == DdpCommWrapper::kNone;
}

std::string name_of_comm_hook(const Ddp& options) {
  const auto hook = options.comm_hook ? "custom" : name_of(options.ddp_comm_hook);
  if (options.ddp_comm_wrapper == DdpCommWrapper::kNone) return hook;
  return name_of(options.ddp_comm_wrapper) + "(" + hook + ")";
}

}  // namespace lockstep::detail

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
