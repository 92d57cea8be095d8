// What a BucketReducer does for a rank that has no batch while others run an averaged backward.
#include <lockstep/torch.h>

#include "parallel/ddp/bucket_layout.h"
#include "parallel/ddp/bucket_reducer.h"

namespace lockstep::detail {

// The order of collectives is that of a true backward: all buckets are started, then who uses which parameter
// is summed, then buckets are finished.
void BucketReducer::shadow_backward(int divisor) {
  rebuild_buckets();
  hook_->begin(pass(divisor, nullptr));
  auto buckets = reducer_->get_grad_buckets(/*return_zero_tensors=*/true);
  const bool adds_own = divisor == comm_.size();
  for (auto& bucket : buckets) {
    if (adds_own) add_own(bucket);
    hook_->runHook(bucket);
  }
  if (walks_graph()) reduce_shadow_map();
  for (auto& bucket : buckets) keep(bucket, hook_->finish(bucket.getIndex()));
  reducer_->push_rebuilt_params_for_all_indices();
}

// The averages of an earlier pass of this step. (They are in the gradients of each rank that has a batch:
// where only these count, they are complete without ours.)
void BucketReducer::add_own(c10d::GradBucket& bucket) const {
  const at::NoGradGuard no_grad;
  const auto parameters = bucket.getParameters();
  const auto views = gradient_views(bucket.getBuffer(), parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].grad().defined()) views[i].copy_(parameters[i].grad());
  }
}

void BucketReducer::reduce_shadow_map() {
  const auto map = at::empty({static_cast<std::int64_t>(trained_.size())}, at::kInt);
  reduce_used_map(map);
  hook_->finish_used_map();
}

// As the Reducer does: what no rank uses keeps the gradient it had.
void BucketReducer::keep(const c10d::GradBucket& bucket, const at::Tensor& averages) const {
  const at::NoGradGuard no_grad;
  const auto parameters = bucket.getParameters();
  const auto views = gradient_views(averages, parameters);
  const auto* const used = used_.defined() ? used_.const_data_ptr<int>() : nullptr;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (used && used[indices_.at(parameters[i].unsafeGetTensorImpl())] == 0) continue;
    auto& gradient = parameters[i].mutable_grad();
    if (!gradient.defined()) gradient = at::empty_like(parameters[i]);
    gradient.copy_(views[i]);
  }
}

}  // namespace lockstep::detail
