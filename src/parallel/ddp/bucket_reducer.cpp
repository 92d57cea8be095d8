// BucketReducer: averages in buckets, also for a rank that has no batch while others run an averaged
// backward, and what c10d's Logger gathers of them.
#include "parallel/ddp/bucket_reducer.h"

#include <cmath>
#include <functional>
#include <sstream>

#include <lockstep/base/error.h>
#include <lockstep/torch.h>

#include "comm/c10d.h"
#include "parallel/backward_checks.h"
#include "parallel/ddp/comm_hooks.h"

namespace lockstep::detail {
namespace {

// Sums who uses which parameter over ranks. Collective, asynchronous.
using ReduceUsedMap = std::function<c10::intrusive_ptr<c10d::Work>(const at::Tensor& map)>;

class WorkAdapter final : public c10d::Work {
 public:
  explicit WorkAdapter(lockstep::Work work) : work_(std::move(work)) {}
  bool isCompleted() override { return work_.is_completed(); }
  bool wait(std::chrono::milliseconds /*of the group*/) override {
    work_.wait();
    return true;
  }

 private:
  lockstep::Work work_;
};

class ReducerBackend final : public c10d::Backend {
 public:
  ReducerBackend(Communicator comm, ReduceUsedMap reduce_used_map)
      : Backend(comm.rank(), comm.size()),
        comm_(std::move(comm)),
        reduce_used_map_(std::move(reduce_used_map)) {}
  const std::string getBackendName() const override { return "lockstep"; }

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    return c10::make_intrusive<WorkAdapter>(
        comm_.broadcast_async(tensors.at(0), static_cast<int>(options.rootRank)));
  }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& /*a sum*/) override {
    return reduce_used_map_(tensors.at(0));
  }

 private:
  Communicator comm_;
  ReduceUsedMap reduce_used_map_;
};

// Its collectives are those of the Communicator; nothing of c10d's own process groups is used. It has the two
// that a Reducer calls besides its comm hook: broadcast (of the bucket order) and all-reduce, which it needs
// for the map of used parameters only.
c10::intrusive_ptr<c10d::ProcessGroup> make_reducer_group(const Communicator& comm, c10::DeviceType device,
                                                          ReduceUsedMap reduce_used_map) {
  using c10d::ProcessGroup;
  auto group = c10::make_intrusive<ProcessGroup>(comm.rank(), comm.size());
  group->setDefaultBackend(ProcessGroup::BackendType::CUSTOM);
  group->setBackend(device, ProcessGroup::BackendType::CUSTOM,
                    c10::make_intrusive<ReducerBackend>(comm, std::move(reduce_used_map)));
  group->setGroupName("lockstep_ddp");
  return group;
}

[[noreturn]] void refuse_sparse(const std::string& name) {
  throw ConfigError("parallel", {.what = "a sparse gradient cannot be averaged: that of " + name,
                                 .expected = "dense gradients",
                                 .got = "a sparse one",
                                 .hint = "leave out sparse(true) of the embedding"});
}

[[noreturn]] void refuse_late(const std::string& name) {
  throw CommError(
      "parallel",
      {.what = "a gradient came after the gradients of its model had been averaged: " + name,
       .expected = "a model whose backward runs once per pass",
       .got = "another backward within the same backward, as of a checkpoint around the whole model "
              "that is called twice",
       .hint = "set static_graph = true, or call the model once, on the inputs together"});
}

}  // namespace

GradientArrivals::GradientArrivals(const std::vector<NamedTensor>& trained, const HookAdapter& hook)
    : hook_(hook) {
  for (const auto& named : trained) {
    handles_.emplace_back(register_post_accumulate_grad_hook(
        named.tensor, [this, &named](const at::Tensor&) { arrived(named); }));
  }
}

void GradientArrivals::arrived(const NamedTensor& named) {
  if (!is_open_) return;
  has_any_ = true;
  if (named.tensor.grad().layout() != at::kStrided) refuse_sparse(named.name);
  if (hook_.is_finished()) refuse_late(named.name);
}

namespace {

// The last layers' gradients come first, so buckets run from the last parameter to the first. Until the
// true order is known one bucket does, unless buckets will never be rebuilt.
std::vector<std::vector<std::size_t>> plan_buckets(const ReducerArgs& args, bool are_final) {
  const auto everything = static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max());
  std::vector<std::size_t> caps{everything};
  if (are_final) {
    caps = {static_cast<std::size_t>(args.first_bucket_bytes_cap),
            static_cast<std::size_t>(args.bucket_bytes_cap)};
  }
  auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(args.parameters, caps));
  std::reverse(buckets.begin(), buckets.end());
  return buckets;
}

std::shared_ptr<c10d::Reducer> plan_reducer(const std::vector<NamedTensor>& trained, const Communicator& comm,
                                            const Ddp& options, ReduceUsedMap reduce_used_map) {
  ReducerArgs args;
  for (const auto& named : trained) {
    args.names[args.parameters.size()] = named.name;
    args.parameters.push_back(named.tensor);
  }
  args.process_group =
      make_reducer_group(comm, trained.front().tensor.device().type(), std::move(reduce_used_map));
  args.bucket_bytes_cap = bucket_bytes(options);
  // As PyTorch: a cap of one's own means it for the first bucket, too.
  if (options.bucket_cap_mb != Ddp{}.bucket_cap_mb) args.first_bucket_bytes_cap = args.bucket_bytes_cap;
  args.find_unused_parameters = options.find_unused_parameters;
  args.gradient_as_bucket_view = options.gradient_as_bucket_view;
  args.skip_all_reduce_unused_params = options.skip_all_reduce_unused_params;
  args.buckets = plan_buckets(args, options.find_unused_parameters && !options.static_graph);
  return make_reducer(std::move(args));
}

// The Reducer tells its logger when the graph turns out not to be static: without one it would crash.
std::shared_ptr<c10d::Logger> attach_logger(const std::shared_ptr<c10d::Reducer>& reducer,
                                            const Ddp& options) {
  auto logger = std::make_shared<c10d::Logger>(reducer);
  reducer->set_logger(logger);
  logger->set_construction_data_and_log("", {}, -1, options.broadcast_buffers, /*has_sync_bn=*/false,
                                        options.static_graph);
  return logger;
}

// A parameter may be frozen for a while; its gradients are followed all the same, once it is not.
class Unfrozen {
 public:
  explicit Unfrozen(const std::vector<NamedTensor>& trained) {
    for (const auto& named : trained) {
      if (!named.tensor.requires_grad()) frozen_.push_back(named.tensor);
    }
    for (const auto& tensor : frozen_) tensor.set_requires_grad(true);
  }
  ~Unfrozen() {
    for (const auto& tensor : frozen_) tensor.set_requires_grad(false);
  }
  Unfrozen(const Unfrozen&) = delete;
  Unfrozen& operator=(const Unfrozen&) = delete;

 private:
  std::vector<at::Tensor> frozen_;
};

// What the Reducer waits for when it has to know whether other ranks use a parameter.
class UsedMapWork final : public c10d::Work {
 public:
  explicit UsedMapWork(HookAdapter& hook) : hook_(hook) {}
  bool wait(std::chrono::milliseconds /*of the group*/) override {
    hook_.finish_used_map();
    return true;
  }

 private:
  HookAdapter& hook_;
};

}  // namespace

std::int64_t bucket_bytes(const Ddp& options) {
  if (!(options.bucket_cap_mb > 0)) {
    throw ConfigError("parallel", {.what = "bucket_cap_mb is out of range",
                                   .expected = "more than 0",
                                   .got = std::to_string(options.bucket_cap_mb)});
  }
  return std::max<std::int64_t>(1, std::llround(options.bucket_cap_mb * 1024 * 1024));
}

BucketReducer::BucketReducer(const std::vector<NamedTensor>& trained, const Communicator& comm,
                             const Ddp& options, CommHook hook)
    : trained_(trained), comm_(comm), options_(options) {
  for (const auto& named : trained) {
    indices_.emplace(named.tensor.unsafeGetTensorImpl(), static_cast<std::int64_t>(indices_.size()));
  }
  const Unfrozen scope(trained);
  reducer_ =
      plan_reducer(trained, comm, options, [this](const at::Tensor& map) { return reduce_used_map(map); });
  auto adapter = std::make_unique<HookAdapter>(std::move(hook), comm);
  hook_ = adapter.get();
  reducer_->register_comm_hook(std::move(adapter));
  if (options.static_graph) reducer_->set_static_graph();
  arrivals_ = std::make_unique<GradientArrivals>(trained, *hook_);
  logger_ = attach_logger(reducer_, options);
  bucket_sizes_ = logger_->get_bucket_sizes();
}

BucketReducer::~BucketReducer() = default;

// The times of the iteration before are taken when the next one begins.
void BucketReducer::begin_iteration() {
  // On a device they would be waited for.
  if (trained_.front().tensor.is_cpu()) logger_->set_runtime_stats_and_log();
  reducer_->prepare_for_forward();
}

void BucketReducer::rebuild_buckets() {
  if (reducer_->rebuild_buckets()) rebuilt_bucket_sizes_ = logger_->get_bucket_sizes();
}

HookPass BucketReducer::pass(int divisor, BucketReducer* before) const {
  const auto& sizes = rebuilt_bucket_sizes_.empty() ? bucket_sizes_ : rebuilt_bucket_sizes_;
  return {.divisor = divisor,
          .buckets = sizes.size(),
          .ends_with_used_map = walks_graph(),
          .before = before ? before->hook_ : nullptr};
}

// Where unused parameters are found, who has a gradient counts as used: what local passes have left is
// averaged, and what was cleared since is not expected. So the Reducer's own memory of them goes.
void BucketReducer::prepare_backward(const at::Tensor& loss, int divisor, BucketReducer* before) {
  refuse_local_gradients();
  if (!std::exchange(is_iteration_begun_, false)) begin_iteration();
  rebuild_buckets();
  if (walks_graph()) reducer_->reset_state();
  hook_->begin(pass(divisor, before));
  arrivals_->begin();
  reducer_->prepare_for_backward(walks_graph() ? std::vector<at::Tensor>{loss} : std::vector<at::Tensor>{});
}

void BucketReducer::complete_backward() try {
  if (hook_->is_complete()) return;
  if (is_learning() && arrivals_->has_any()) return learn_graph();
  reducer_->check_finalized();
  const bool may_do_without = walks_graph() && !options_.skip_all_reduce_unused_params;
  if (!may_do_without) refuse_loss_without_model(trained_, comm_.rank());
  take_part_without_gradient();
} catch (const c10::Error& error) {
  throw_named(error, trained_, options_, comm_.rank());
}

// The first averaged backward of a static graph only counts gradients; they are reduced when it is over.
void BucketReducer::learn_graph() {
  reducer_->delay_all_reduce();
  used_ = used_.cpu();
  has_learnt_graph_ = true;
}

// The Reducer would never average them: it takes such parameters for unused.
void BucketReducer::refuse_local_gradients() const {
  if (!options_.static_graph || !has_learnt_graph_) return;
  const auto* const used = used_.const_data_ptr<int>();
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    if (used[i] != 0 || !trained_[i].tensor.grad().defined()) continue;
    throw ConfigError(
        "parallel", {.what = "static_graph: a parameter that the first window did not use has a gradient: " +
                             trained_[i].name,
                     .expected = "the same graphs in every window, local passes included",
                     .got = "a gradient that would stay this rank's own",
                     .where = "rank " + std::to_string(comm_.rank()),
                     .hint = "set static_graph = false and find_unused_parameters = true"});
  }
}

// As if the first parameter had got an undefined gradient, and the others none.
void BucketReducer::take_part_without_gradient() {
  const Unfrozen scope(trained_);
  const at::AutoGradMode enable(true);
  const auto& first = trained_.front().tensor;
  reducer_->reset_state();
  reducer_->prepare_for_backward({first.view_as(first)});
  reducer_->autograd_hook(0);
}

void BucketReducer::mark_used(const at::Tensor& map) const {
  const auto mine = at::zeros({static_cast<std::int64_t>(trained_.size())}, at::kInt);
  auto* const used = mine.mutable_data_ptr<int>();
  for (std::size_t i = 0; i < trained_.size(); ++i) used[i] = trained_[i].tensor.grad().defined() ? 1 : 0;
  map.copy_(mine);
}

c10::intrusive_ptr<c10d::Work> BucketReducer::reduce_used_map(const at::Tensor& map) {
  mark_used(map);
  used_ = map;
  hook_->start_used_map(map);
  return c10::make_intrusive<UsedMapWork>(*hook_);
}

void BucketReducer::end_step() {
  if (!std::exchange(is_iteration_begun_, true)) begin_iteration();
}

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

namespace {

std::int64_t number(const at::DDPLoggingData& from, const char* key) {
  const auto found = from.ints_map.find(key);
  return found == from.ints_map.end() ? 0 : found->second;
}

std::chrono::nanoseconds duration(const at::DDPLoggingData& from, const char* key) {
  return std::chrono::nanoseconds(number(from, key));
}

// c10d gives lists as "3, 1, 2".
std::vector<std::size_t> numbers(const at::DDPLoggingData& from, const char* key) {
  std::vector<std::size_t> list;
  const auto found = from.strs_map.find(key);
  if (found == from.strs_map.end()) return list;
  std::istringstream text(found->second);
  for (std::size_t item = 0; text >> item; text.ignore(1)) list.push_back(item);
  return list;
}

void fill_times(DdpLoggingData& data, const at::DDPLoggingData& from) {
  data.forward_compute_time = duration(from, "forward_compute_time");
  data.backward_compute_time = duration(from, "backward_compute_time");
  data.backward_comm_time = duration(from, "backward_comm_time");
  data.backward_compute_comm_overlap_time = duration(from, "backward_compute_comm_overlap_time");
  data.avg_forward_compute_time = duration(from, "avg_forward_compute_time");
  data.avg_backward_compute_time = duration(from, "avg_backward_compute_time");
  data.avg_backward_comm_time = duration(from, "avg_backward_comm_time");
  data.avg_backward_compute_comm_overlap_time = duration(from, "avg_backward_compute_comm_overlap_time");
}

}  // namespace

void BucketReducer::fill(DdpLoggingData& data) const {
  const auto from = logger_->get_ddp_logging_data();
  data.iteration = number(from, "iteration");
  data.unused_parameter_size = number(from, "unused_parameter_size");
  data.can_set_static_graph = reducer_->ddp_graph_static();
  data.bucket_sizes = bucket_sizes_;
  data.has_rebuilt_buckets = !rebuilt_bucket_sizes_.empty();
  data.rebuilt_bucket_sizes = rebuilt_bucket_sizes_;
  for (const auto index : numbers(from, "prev_iteration_grad_ready_order_indices")) {
    if (index < trained_.size()) data.prev_iteration_grad_ready_order.push_back(trained_[index].name);
  }
  fill_times(data, from);
}

}  // namespace lockstep::detail
