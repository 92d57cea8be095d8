// HookAdapter: a CommHook as c10d's Reducer sees it, and the order in which the models of one backward send.
#include "parallel/ddp/bucket_reducer.h"

#include <utility>

#include <lockstep/base/error.h>

#include "parallel/ddp/comm_hooks.h"

namespace lockstep::detail {

void ReductionTurn::begin(ReductionTurn* before) {
  *this = {};
  has_come_ = !before;
  if (before) before->next_ = this;
}

void ReductionTurn::send(std::function<void()> send) {
  if (has_come_) return send();
  waiting_.push_back(std::move(send));
}

void ReductionTurn::end() {
  has_ended_ = true;
  if (has_come_ && next_) next_->come();
}

void ReductionTurn::come() {
  has_come_ = true;
  for (const auto& send : std::exchange(waiting_, {})) send();
  if (has_ended_ && next_) next_->come();
}

namespace {

using Future = c10::ivalue::Future;

class BucketView final : public GradBucket {
 public:
  BucketView(c10d::GradBucket& bucket, std::size_t index, const HookPass& pass)
      : bucket_(bucket), index_(index), pass_(pass) {}
  std::size_t index() const override { return index_; }
  bool is_last() const override { return index_ + 1 == pass_.buckets; }
  const at::Tensor& buffer() const override { return bucket_.getBuffer(); }
  std::vector<at::Tensor> gradients() const override { return gradient_views(buffer(), parameters()); }
  std::vector<at::Tensor> parameters() const override { return bucket_.getParameters(); }
  int divisor() const override { return pass_.divisor; }

 private:
  c10d::GradBucket& bucket_;
  std::size_t index_;
  const HookPass& pass_;
};

c10::intrusive_ptr<Future> make_ticket(std::size_t index) {
  auto ticket = c10::make_intrusive<Future>(c10::IntType::get());
  ticket->markCompleted(static_cast<std::int64_t>(index));
  return ticket;
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

// The Reducer takes gradients out of it by their place in memory.
at::Tensor as_bucket(const at::Tensor& result, const at::Tensor& buffer) {
  const bool is_flat = result.is_contiguous() && result.storage_offset() == 0;
  if (is_flat && result.scalar_type() == buffer.scalar_type() && result.device() == buffer.device()) {
    return result;
  }
  return buffer.copy_(result.reshape(buffer.sizes()));
}

[[noreturn]] void refuse_turn() {
  throw CommError(
      "parallel",
      {.what = "a model's backward was over before that of a model that sends before it",
       .expected = "backward passes within backward (checkpoints) in the order of sending, which is "
                   "from the last model to the first",
       .got = "another order",
       .hint = "name the models in the other order, as in backward(loss, second, first)"});
}

}  // namespace

void HookAdapter::begin(const HookPass& pass) {
  pass_ = pass;
  turn_.begin(pass.before ? &pass.before->turn_ : nullptr);
  slots_.assign(pass.buckets, {});
  while (tickets_.size() < pass.buckets) tickets_.push_back(make_ticket(tickets_.size()));
  next_index_ = 0;
  is_finished_ = false;
  used_map_ = {};
}

// Where all buckets are reduced late, c10d gives each the index 0; where some are skipped, there are gaps.
c10::intrusive_ptr<Future> HookAdapter::runHook(c10d::GradBucket& bucket) {
  const auto index = std::max(bucket.getIndex(), next_index_);
  next_index_ = index + 1;
  turn_.send([this, bucket, index]() mutable { start(bucket, index); });
  if (next_index_ == pass_.buckets && !pass_.ends_with_used_map) turn_.end();
  return tickets_.at(index);
}

void HookAdapter::start(c10d::GradBucket& bucket, std::size_t index) {
  const at::NoGradGuard no_grad;
  auto& slot = slots_.at(index);
  slot.buffer = bucket.getBuffer();
  slot.finish = hook_(BucketView(bucket, index, pass_), comm_);
  if (!slot.finish) refuse_result(index, "a function that finishes the reduction", "none");
}

void HookAdapter::start_used_map(const at::Tensor& map) {
  turn_.send([this, map] { used_map_ = comm_.all_reduce_async(map); });
  if (pass_.ends_with_used_map) turn_.end();
}

void HookAdapter::finish_used_map() {
  if (!turn_.has_come()) refuse_turn();
  used_map_.wait();
}

at::Tensor HookAdapter::parseHookResult(const c10::IValue& result) {
  return finish(static_cast<std::size_t>(result.toInt()));
}

// What finishes a bucket may communicate again: that, too, in the order of turns.
at::Tensor HookAdapter::finish(std::size_t index) {
  if (!turn_.has_come()) refuse_turn();
  if (pass_.before) pass_.before->finish_all();
  auto& slot = slots_.at(index);
  finish(slot, index);
  is_finished_ = index + 1 == pass_.buckets;
  return std::exchange(slot.averages, {});
}

void HookAdapter::finish(Slot& slot, std::size_t index) const {
  if (!slot.finish) return;
  const at::NoGradGuard no_grad;
  const auto result = std::exchange(slot.finish, {})();
  check_result(result, slot.buffer.numel(), index);
  slot.averages = as_bucket(result, slot.buffer);
}

void HookAdapter::finish_all() {
  if (pass_.before) pass_.before->finish_all();
  for (std::size_t index = 0; index < slots_.size(); ++index) finish(slots_[index], index);
}

}  // namespace lockstep::detail
