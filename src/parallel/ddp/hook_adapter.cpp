#include "parallel/ddp/hook_adapter.h"

#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

using Future = c10::ivalue::Future;

class BucketView final : public GradBucket {
 public:
  BucketView(c10d::GradBucket& bucket, int divisor) : bucket_(bucket), divisor_(divisor) {}
  std::size_t index() const override { return bucket_.getIndex(); }
  bool is_last() const override { return bucket_.isLast(); }
  const at::Tensor& buffer() const override { return bucket_.getBuffer(); }
  std::vector<at::Tensor> gradients() const override { return bucket_.getGradients(); }
  std::vector<at::Tensor> parameters() const override { return bucket_.getParameters(); }
  int divisor() const override { return divisor_; }

 private:
  c10d::GradBucket& bucket_;
  int divisor_;
};

c10::intrusive_ptr<Future> make_ticket(std::size_t index) {
  auto ticket = c10::make_intrusive<Future>(c10::IntType::get());
  ticket->markCompleted(static_cast<std::int64_t>(index));
  return ticket;
}

void check_result(const at::Tensor& result, std::int64_t numel, std::size_t index) {
  if (result.defined() && result.numel() == numel) return;
  throw CommError(
      "parallel",
      {.what = "a comm hook returned something else than the gradients of bucket " + std::to_string(index),
       .expected = "a tensor of " + std::to_string(numel) + " elements",
       .got = result.defined() ? std::to_string(result.numel()) + " elements" : "no tensor"});
}

}  // namespace

c10::intrusive_ptr<Future> HookAdapter::runHook(c10d::GradBucket& bucket) {
  const at::NoGradGuard no_grad;
  const auto index = bucket.getIndex();
  while (tickets_.size() <= index) tickets_.push_back(make_ticket(tickets_.size()));
  finishes_.resize(tickets_.size());
  const auto numel = bucket.getBuffer().numel();
  finishes_[index] = [finish = hook_(BucketView(bucket, divisor_), comm_), numel, index] {
    auto result = finish();
    check_result(result, numel, index);
    return result;
  };
  return tickets_[index];
}

at::Tensor HookAdapter::parseHookResult(const c10::IValue& result) {
  return finish(static_cast<std::size_t>(result.toInt()));
}

at::Tensor HookAdapter::finish(std::size_t index) {
  const at::NoGradGuard no_grad;
  return std::exchange(finishes_[index], {})();
}

}  // namespace lockstep::detail
