#include "parallel/ddp/gradient_reducer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/torch.h>

#include "comm/group/group.h"
#include "parallel/backward_checks.h"
#include "parallel/ddp/comm_hooks.h"

namespace lockstep::detail {
namespace {

constexpr std::int64_t kFirstBucketBytes = 1 << 20;  // as c10d's

class ArrivalHook final : public torch::autograd::FunctionPostHook {
 public:
  ArrivalHook(const GradientArrivals::Arrived& arrived, std::size_t index)
      : arrived_(arrived), index_(index) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& /*inputs*/) override {
    arrived_(index_);
    return outputs;
  }

 private:
  const GradientArrivals::Arrived& arrived_;
  std::size_t index_;
};

// A parameter may be frozen for a while; its gradients are followed all the same, once it is not.
class Unfrozen {
 public:
  explicit Unfrozen(const at::Tensor& tensor) : tensor_(tensor), was_frozen_(!tensor.requires_grad()) {
    if (was_frozen_) tensor_.set_requires_grad(true);
  }
  ~Unfrozen() {
    if (was_frozen_) tensor_.set_requires_grad(false);
  }
  Unfrozen(const Unfrozen&) = delete;
  Unfrozen& operator=(const Unfrozen&) = delete;

 private:
  const at::Tensor& tensor_;
  bool was_frozen_;
};

}  // namespace

GradientArrivals::GradientArrivals(const std::vector<NamedTensor>& trained, Arrived arrived)
    : arrived_(std::move(arrived)) {
  for (std::size_t index = 0; index < trained.size(); ++index) {
    const Unfrozen scope(trained[index].tensor);
    auto accumulator = torch::autograd::impl::grad_accumulator(trained[index].tensor);
    const auto key = accumulator->add_post_hook(std::make_unique<ArrivalHook>(arrived_, index));
    registered_.push_back({.accumulator = std::move(accumulator), .key = key});
  }
}

GradientArrivals::~GradientArrivals() {
  for (const auto& [accumulator, key] : registered_) accumulator->del_post_hook(key);
}

namespace {

std::vector<std::size_t> all_indices(std::size_t count) {
  std::vector<std::size_t> indices(count);
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

BucketCaps caps_of(const Ddp& options) {
  const auto rest = bucket_bytes(options);
  // As PyTorch: a cap of one's own means it for the first bucket, too.
  return {.first = options.bucket_cap_mb == Ddp{}.bucket_cap_mb ? kFirstBucketBytes : rest, .rest = rest};
}

// The last layers' gradients come first, so buckets run from the last parameter to the first. Until the
// true order is known one bucket does, unless buckets will never be planned anew.
BucketPlan first_plan(const std::vector<NamedTensor>& trained, const Ddp& options) {
  constexpr auto kEverything = std::numeric_limits<std::int64_t>::max();
  const bool is_final = options.find_unused_parameters && !options.static_graph;
  auto plan = plan_buckets(trained, all_indices(trained.size()),
                           is_final ? caps_of(options) : BucketCaps{kEverything, kEverything});
  std::ranges::sort(plan, std::greater{}, [](const auto& bucket) { return bucket.front(); });
  return plan;
}

// Each parameter where it came last; those that never came at the end.
std::vector<std::size_t> last_arrivals(const std::vector<std::size_t>& order, std::size_t count) {
  std::vector<std::size_t> last;
  std::vector<char> has_been(count, false);
  for (auto index = order.rbegin(); index != order.rend(); ++index)
    if (!std::exchange(has_been[*index], true)) last.push_back(*index);
  std::ranges::reverse(last);
  for (std::size_t index = count; index-- > 0;)
    if (!has_been[index]) last.push_back(index);
  return last;
}

void warn_of_unneeded_walk() {
  warn_once("ddp.find_unused_parameters",
            "find_unused_parameters is set, but the loss of every rank used all parameters of the model: the "
            "walk through the graph before each averaged backward can be saved by leaving it out, unless "
            "later steps leave out parameters");
}

bool are_averaged_where_they_lie(const std::vector<NamedTensor>& trained, const Ddp& options) {
  return averages_plainly(options) && !options.gradient_as_bucket_view &&
         std::ranges::all_of(trained, [](const NamedTensor& named) { return named.tensor.is_cpu(); });
}

}  // namespace

std::int64_t bucket_bytes(const Ddp& options) {
  if (!(options.bucket_cap_mb > 0)) {
    throw ConfigError("parallel", {.what = "bucket_cap_mb is out of range",
                                   .expected = "more than 0",
                                   .got = std::to_string(options.bucket_cap_mb)});
  }
  return std::max<std::int64_t>(1, std::llround(options.bucket_cap_mb * 1024 * 1024));
}

GradientReducer::GradientReducer(const std::vector<NamedTensor>& trained, const Communicator& comm,
                                 const Ddp& options, CommHook hook)
    : trained_(trained),
      comm_(comm),
      options_(options),
      hook_(are_averaged_where_they_lie(trained, options) ? CommHook() : std::move(hook)),
      log_(trained.front().tensor.is_cpu()),
      is_ready_(trained.size()),
      is_unused_(trained.size()),
      arrivals_(trained.size()),
      followed_(trained, [this](std::size_t index) { arrived(index); }) {
  for (std::size_t index = 0; index < trained.size(); ++index)
    indices_.emplace(trained[index].tensor.unsafeGetTensorImpl(), index);
  make_buckets(first_plan(trained, options));
  first_bucket_sizes_ = bucket_sizes();
}

void GradientReducer::make_buckets(const BucketPlan& plan) {
  using Memory = GradientBucket::Memory;
  const auto memory = !hook_                             ? Memory::kNone
                      : options_.gradient_as_bucket_view ? Memory::kViews
                                                         : Memory::kFlat;
  plan_ = plan;
  places_.resize(trained_.size());
  buckets_.clear();
  for (const auto& indices : plan) {
    std::vector<at::Tensor> parameters;
    for (const auto index : indices) {
      places_[index] = {.bucket = buckets_.size(), .member = parameters.size()};
      parameters.push_back(trained_[index].tensor);
    }
    buckets_.emplace_back(buckets_.size(), std::move(parameters), memory);
  }
}

// In the order in which rank 0 got its gradients; once, and only where all ranks have the same ones to send.
void GradientReducer::rebuild_buckets() {
  if (walks_graph() || has_rebuilt_buckets_ || !has_order_) return;
  const auto order = last_arrivals(order_, trained_.size());
  const auto agreed = at::empty({static_cast<std::int64_t>(order.size())}, at::kLong);
  std::ranges::copy(order, agreed.mutable_data_ptr<std::int64_t>());
  comm_.broadcast(agreed);
  const auto* const first = agreed.const_data_ptr<std::int64_t>();
  make_buckets(
      plan_buckets(trained_, std::vector<std::size_t>(first, first + order.size()), caps_of(options_)));
  has_rebuilt_buckets_ = true;
}

std::vector<std::int64_t> GradientReducer::bucket_sizes() const {
  std::vector<std::int64_t> sizes;
  for (const auto& bucket : buckets_) sizes.push_back(bucket.bytes());
  return sizes;
}

Averaging GradientReducer::averaging() const {
  return {.comm = comm_, .hook = hook_, .divisor = divisor_, .buckets = buckets_.size()};
}

void GradientReducer::begin_pass(int divisor, GradientReducer* before, bool counts_own) {
  divisor_ = divisor;
  before_ = before;
  after_ = nullptr;
  if (before) before->after_ = this;
  next_bucket_ = 0;
  has_sent_all_ = has_any_ = false;
  std::ranges::fill(is_ready_, false);
  order_.clear();
  if (options_.static_graph) missing_ = arrivals_;
  for (auto& bucket : buckets_) bucket.begin(counts_own);
  log_.begin_pass();
}

void GradientReducer::prepare_backward(const at::Tensor& loss, int divisor, GradientReducer* before) {
  refuse_local_gradients();
  rebuild_buckets();
  begin_pass(divisor, before, /*counts_own=*/true);
  is_open_ = true;
  if (walks_graph()) find_unused(loss);
  if (walks_graph() || has_learnt_graph_) {
    for (std::size_t index = 0; index < trained_.size(); ++index)
      if (is_unused_[index]) take(index);
  }
  send_ready();
}

// Where unused parameters are found, who has a gradient counts as used: what local passes have left is
// averaged, and what was cleared since is not expected.
void GradientReducer::find_unused(const at::Tensor& loss) {
  std::ranges::fill(is_unused_, true);
  for_each_leaf(loss, [&](const at::Tensor& leaf) {
    const auto found = indices_.find(leaf.unsafeGetTensorImpl());
    if (found != indices_.end()) is_unused_[found->second] = false;
    return true;
  });
  std::vector<std::size_t> unused;
  for (std::size_t index = 0; index < trained_.size(); ++index)
    if (is_unused_[index]) unused.push_back(index);
  log_.set_unused(std::move(unused), /*may_differ=*/true);
}

// Reduces nothing that a backward elsewhere accumulates.
void GradientReducer::arrived(std::size_t index) {
  if (!is_open_) return;
  const auto& [name, tensor] = trained_[index];
  if (tensor.grad().defined() && tensor.grad().layout() != at::kStrided) refuse_sparse_gradient(name);
  const std::lock_guard lock(mutex_);
  has_any_ = true;
  if (options_.static_graph) return count_arrival(index);
  if (is_ready_[index]) refuse_repeated_gradient(name, comm_.rank());
  take(index);
  send_ready();
}

// The first averaged backward of a static graph only counts gradients; they are reduced when it is over.
void GradientReducer::count_arrival(std::size_t index) {
  if (is_learning()) {
    ++arrivals_[index];
    order_.push_back(index);
    return;
  }
  if (missing_[index] == 0) refuse_changed_graph(trained_[index].name, comm_.rank());
  if (--missing_[index] > 0) return;
  take(index);
  send_ready();
}

void GradientReducer::take(std::size_t index) {
  const auto place = places_[index];
  is_ready_[index] = true;
  if (!is_learning()) order_.push_back(index);
  buckets_[place.bucket].take(place.member);
}

bool GradientReducer::skips(std::size_t bucket) const {
  return options_.skip_all_reduce_unused_params &&
         std::ranges::all_of(plan_[bucket], [this](std::size_t index) { return is_unused_[index] != 0; });
}

// How many buckets may be started while backward runs. The last one is complete when nothing is left to
// overlap with: it is reduced by who waits for it, without a change of threads. So are all where nothing
// would overlap.
std::size_t GradientReducer::sent_early() const {
  if (hook_) return buckets_.size();
  if (!comm_.group()->overlaps()) return 0;
  return buckets_.size() - (after_ == nullptr && !walks_graph() ? 1 : 0);
}

void GradientReducer::send_ready() {
  if (!has_turn()) return;
  const auto end = sent_early();
  for (; next_bucket_ < end && buckets_[next_bucket_].is_complete(); ++next_bucket_) {
    log_.begin_reduction();
    if (!skips(next_bucket_)) buckets_[next_bucket_].start(averaging());
  }
  if (next_bucket_ == buckets_.size() && !walks_graph()) end_sending();
}

// All gradients are there, and the models before have sent theirs.
void GradientReducer::send_rest() {
  send_ready();
  for (; next_bucket_ < buckets_.size(); ++next_bucket_) {
    log_.begin_reduction();
    if (!skips(next_bucket_)) buckets_[next_bucket_].run(averaging());
  }
  if (walks_graph()) agree_on_used();
  end_sending();
}

void GradientReducer::end_sending() {
  if (std::exchange(has_sent_all_, true) || after_ == nullptr) return;
  const std::lock_guard lock(after_->mutex_);
  after_->send_ready();
}

void GradientReducer::complete_backward() {
  log_.end_gradients();
  const std::lock_guard lock(mutex_);
  const bool may_do_without = walks_graph() && !options_.skip_all_reduce_unused_params;
  if (!has_any_ && !may_do_without) refuse_loss_without_model(trained_, comm_.rank());
  if (is_learning()) learn_graph();
  refuse_missing_gradients();
  send_rest();
}

void GradientReducer::learn_graph() {
  agree_on_used();
  std::vector<std::size_t> unused;
  for (std::size_t index = 0; index < trained_.size(); ++index) {
    is_unused_[index] = arrivals_[index] == 0;
    if (is_unused_[index]) unused.push_back(index);
    take(index);
  }
  log_.set_unused(std::move(unused), /*may_differ=*/false);
  order_ = last_arrivals(order_, trained_.size());
  has_learnt_graph_ = true;
}

void GradientReducer::refuse_missing_gradients() const {
  std::string names;
  for (std::size_t index = 0; index < trained_.size(); ++index)
    if (!is_ready_[index]) names += (names.empty() ? "" : ", ") + trained_[index].name;
  if (!names.empty()) refuse_missing(names, options_.static_graph, comm_.rank());
}

// A last element counts the ranks whose graphs left out parameters, whether these have gradients or not.
void GradientReducer::agree_on_used() {
  const auto count = trained_.size();
  used_ = at::zeros({static_cast<std::int64_t>(count + 1)}, at::kInt);
  auto* const used = used_.mutable_data_ptr<int>();
  for (std::size_t i = 0; i < count; ++i) used[i] = trained_[i].tensor.grad().defined() ? 1 : 0;
  used[count] = std::ranges::any_of(is_unused_, [](auto is_unused) { return is_unused != 0; }) ? 1 : 0;
  comm_.all_reduce(used_);
  if (walks_graph() && used[count] == 0 && comm_.rank() == 0) warn_of_unneeded_walk();
}

bool GradientReducer::is_used(std::size_t index) const {
  return !used_.defined() || used_.const_data_ptr<int>()[index] != 0;
}

void GradientReducer::finish_backward() {
  const auto how = averaging();
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    if (skips(bucket)) continue;
    buckets_[bucket].await(how);
    for (std::size_t member = 0; member < plan_[bucket].size(); ++member)
      buckets_[bucket].keep(member, is_used(plan_[bucket][member]));
    buckets_[bucket].end_keeping();
  }
  has_order_ = true;
  log_.end_pass();
}

void GradientReducer::end_backward() {
  is_open_ = false;
  before_ = after_ = nullptr;
}

// The averages of an earlier pass of this step count, too. (They are in the gradients of each rank that has a
// batch: where only these count, they are complete without ours.)
void GradientReducer::shadow_backward(int divisor) {
  rebuild_buckets();
  begin_pass(divisor, nullptr, /*counts_own=*/divisor == comm_.size());
  for (std::size_t index = 0; index < trained_.size(); ++index) take(index);
  log_.end_gradients();
  send_rest();
  finish_backward();
}

// Such gradients would never be averaged: their parameters count as unused.
void GradientReducer::refuse_local_gradients() const {
  if (!has_learnt_graph_) return;
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    if (is_used(i) || !trained_[i].tensor.grad().defined()) continue;
    throw ConfigError(
        "parallel", {.what = "static_graph: a parameter that the first window did not use has a gradient: " +
                             trained_[i].name,
                     .expected = "the same graphs in every window, local passes included",
                     .got = "a gradient that would stay this rank's own",
                     .where = "rank " + std::to_string(comm_.rank()),
                     .hint = "set static_graph = false and find_unused_parameters = true"});
  }
}

void GradientReducer::fill(DdpLoggingData& data) const {
  data.bucket_sizes = first_bucket_sizes_;
  data.has_rebuilt_buckets = has_rebuilt_buckets_;
  if (has_rebuilt_buckets_) data.rebuilt_bucket_sizes = bucket_sizes();
  for (const auto index : order_) data.prev_iteration_grad_ready_order.push_back(trained_[index].name);
  log_.fill(data, trained_);
}

}  // namespace lockstep::detail
