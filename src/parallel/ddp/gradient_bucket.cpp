#include "parallel/ddp/gradient_bucket.h"

#include <algorithm>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/comm/packed_collectives.h>
#include <lockstep/torch.h>

#include "parallel/ddp/comm_hooks.h"

namespace lockstep::detail {
namespace {

// A bucket that is being filled, of the parameters of one dtype and device.
struct OpenBucket {
  at::ScalarType dtype;
  at::Device device;
  bool is_first = true;
  std::int64_t bytes = 0;
  std::vector<std::size_t> indices = {};
};

OpenBucket& open_bucket_for(std::vector<OpenBucket>& open, const at::Tensor& parameter) {
  const auto found = std::ranges::find_if(open, [&](const OpenBucket& bucket) {
    return bucket.dtype == parameter.scalar_type() && bucket.device == parameter.device();
  });
  if (found != open.end()) return *found;
  return open.emplace_back(OpenBucket{.dtype = parameter.scalar_type(), .device = parameter.device()});
}

// Whether the memory of `gradient` holds the elements as that of `parameter` does, and nobody else's.
bool lies_as(const at::Tensor& parameter, const at::Tensor& gradient) {
  if (gradient.is_conj() || gradient.is_neg() || gradient.storage().use_count() > 1) return false;
  if (parameter.is_contiguous()) return gradient.is_contiguous();
  return parameter.is_non_overlapping_and_dense() && gradient.strides() == parameter.strides();
}

at::Tensor in_order_of_memory(const at::Tensor& dense) {
  return dense.is_contiguous() ? dense : dense.as_strided({dense.numel()}, {1});
}

[[noreturn]] void refuse_result(std::size_t index, const std::string& expected, const std::string& got) {
  throw CommError("parallel", {.what = "a comm hook returned something else than the gradients of bucket " +
                                       std::to_string(index),
                               .expected = expected,
                               .got = got});
}

void check_result(const at::Tensor& result, std::int64_t numel, std::size_t index) {
  if (result.defined() && result.numel() == numel) return;
  refuse_result(index, "a tensor of " + std::to_string(numel) + " elements",
                result.defined() ? std::to_string(result.numel()) + " elements" : "no tensor");
}

}  // namespace

BucketPlan plan_buckets(const std::vector<NamedTensor>& trained, std::span<const std::size_t> indices,
                        const BucketCaps& caps) {
  BucketPlan plan;
  std::vector<OpenBucket> open;
  for (const auto index : indices) {
    const auto& parameter = trained[index].tensor;
    auto& bucket = open_bucket_for(open, parameter);
    bucket.indices.push_back(index);
    bucket.bytes += static_cast<std::int64_t>(parameter.nbytes());
    if (bucket.bytes < (bucket.is_first ? caps.first : caps.rest)) continue;
    plan.push_back(std::exchange(bucket.indices, {}));
    bucket.bytes = 0;
    bucket.is_first = false;
  }
  for (auto& bucket : open)
    if (!bucket.indices.empty()) plan.push_back(std::move(bucket.indices));
  return plan;
}

// What a hook sees.
class GradientBucket::View final : public GradBucket {
 public:
  View(const GradientBucket& bucket, const Averaging& averaging) : bucket_(bucket), averaging_(averaging) {}
  std::size_t index() const override { return bucket_.index_; }
  bool is_last() const override { return bucket_.index_ + 1 == averaging_.buckets; }
  const at::Tensor& buffer() const override { return bucket_.buffer_; }
  std::vector<at::Tensor> gradients() const override { return bucket_.views_; }
  std::vector<at::Tensor> parameters() const override { return bucket_.parameters_; }
  int divisor() const override { return averaging_.divisor; }

 private:
  const GradientBucket& bucket_;
  const Averaging& averaging_;
};

GradientBucket::GradientBucket(std::size_t index, std::vector<at::Tensor> parameters, Memory memory)
    : index_(index), parameters_(std::move(parameters)), memory_(memory) {
  std::int64_t elements = 0;
  for (const auto& parameter : parameters_) {
    elements += parameter.numel();
    bytes_ += static_cast<std::int64_t>(parameter.nbytes());
  }
  substitutes_.resize(parameters_.size());
  if (memory_ == Memory::kNone) return;
  const at::NoGradGuard no_grad;
  buffer_ = at::empty({elements}, parameters_.front().options().requires_grad(false));
  views_ = gradient_views(buffer_, parameters_);
}

void GradientBucket::begin(bool counts_own) {
  copies_.clear();  // those of a bucket that was left out
  viewed_.clear();
  missing_ = parameters_.size();
  counts_own_ = counts_own;
}

void GradientBucket::take(std::size_t place) {
  --missing_;
  if (memory_ == Memory::kNone) return;
  const at::NoGradGuard no_grad;
  const auto& view = views_[place];
  auto& gradient = parameters_[place].mutable_grad();
  if (!gradient.defined() || !counts_own_) {
    view.zero_();
    return;
  }
  if (gradient.const_data_ptr() != view.const_data_ptr()) note_copy(gradient, view);
  if (memory_ == Memory::kViews) viewed_.push_back(place);
  if (copies_.empty()) copy_noted();
}

// Where a kernel takes many at once, they wait for start() or end_keeping().
void GradientBucket::note_copy(const at::Tensor& from, const at::Tensor& to) {
  if (copies_at_once(to.device()))
    copies_.push_back({.from = from, .to = to});
  else
    to.copy_(from);
}

void GradientBucket::copy_noted() {
  copy_in(copies_);
  for (const auto place : viewed_) parameters_[place].mutable_grad() = views_[place];
  copies_.clear();
  viewed_.clear();
}

// Ranks must give each other elements in the same order: that of the parameter's memory.
void GradientBucket::collect_pieces() {
  pieces_.clear();
  for (std::size_t place = 0; place < parameters_.size(); ++place) {
    const auto& parameter = parameters_[place];
    const auto& gradient = parameter.grad();
    auto& substitute = substitutes_[place];
    if (counts_own_ && gradient.defined() && lies_as(parameter, gradient)) {
      pieces_.push_back(in_order_of_memory(gradient));
      continue;
    }
    substitute = at::empty_like(parameter);
    counts_own_&& gradient.defined() ? substitute.copy_(gradient) : substitute.zero_();
    pieces_.push_back(in_order_of_memory(substitute));
  }
}

namespace {

ReduceOp op_of(const Averaging& averaging) {
  return averaging.divisor == averaging.comm.size() ? ReduceOp::kAvg : ReduceOp::kSum;
}

}  // namespace

void GradientBucket::start(const Averaging& averaging) {
  const at::NoGradGuard no_grad;
  if (memory_ == Memory::kNone) {
    collect_pieces();
    work_ = all_reduce_coalesced_async(averaging.comm, pieces_, op_of(averaging));
    return;
  }
  copy_noted();
  finish_ = averaging.hook(View(*this, averaging), averaging.comm);
  if (!finish_) refuse_result(index_, "a function that finishes the reduction", "none");
}

void GradientBucket::run(const Averaging& averaging) {
  const at::NoGradGuard no_grad;
  collect_pieces();
  all_reduce_coalesced(averaging.comm, pieces_, op_of(averaging));
  work_ = {};
}

// Where the divisor is the number of ranks, the collective divides as it sums.
void GradientBucket::divide(const Averaging& averaging) {
  if (op_of(averaging) == ReduceOp::kAvg) return;
  for (auto& piece : pieces_) piece.div_(averaging.divisor);
}

void GradientBucket::await(const Averaging& averaging) {
  const at::NoGradGuard no_grad;
  if (memory_ == Memory::kNone) {
    std::exchange(work_, {}).wait();
    divide(averaging);
    pieces_.clear();
    return;
  }
  const auto result = std::exchange(finish_, {})();
  check_result(result, buffer_.numel(), index_);
  if (memory_ == Memory::kViews && !result.is_same(buffer_)) buffer_.copy_(result.reshape(buffer_.sizes()));
  if (memory_ == Memory::kViews || result.is_same(buffer_)) {
    averages_ = views_;
    return;
  }
  // Views of what a hook made up are taken by their place in it.
  const bool is_flat = result.is_contiguous() && result.device() == buffer_.device() &&
                       result.scalar_type() == buffer_.scalar_type();
  const auto flat = is_flat ? result.view({-1}) : buffer_.copy_(result.reshape(buffer_.sizes()));
  averages_ = gradient_views(flat, parameters_);
}

void GradientBucket::end_keeping() {
  const at::NoGradGuard no_grad;
  copy_noted();
}

void GradientBucket::keep(std::size_t place, bool is_used) {
  auto substitute = std::exchange(substitutes_[place], {});
  if (!is_used) return;
  const at::NoGradGuard no_grad;
  auto& gradient = parameters_[place].mutable_grad();
  if (memory_ == Memory::kViews) {
    gradient = views_[place];
    return;
  }
  if (memory_ == Memory::kFlat) {
    if (!gradient.defined()) gradient = at::empty_like(parameters_[place]);
    note_copy(averages_[place], gradient);
  } else if (substitute.defined()) {
    gradient.defined() ? void(gradient.copy_(substitute)) : void(gradient = std::move(substitute));
  }
}

}  // namespace lockstep::detail
