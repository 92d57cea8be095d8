#include "parallel/ddp/bucket_reducer.h"

#include <cmath>

#include <lockstep/base/error.h>
#include <lockstep/torch.h>

#include "parallel/ddp/reducer_group.h"

namespace lockstep::detail {
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
                                            const Ddp& options) {
  ReducerArgs args;
  for (const auto& named : trained) {
    args.names[args.parameters.size()] = named.name;
    args.parameters.push_back(named.tensor);
  }
  args.process_group = make_reducer_group(comm, trained.front().tensor.device().type());
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
    : trained_(trained), comm_(comm), options_(options), reducer_(plan_reducer(trained, comm, options)) {
  auto adapter = std::make_unique<HookAdapter>(std::move(hook), comm);
  hook_ = adapter.get();
  reducer_->register_comm_hook(std::move(adapter));
  if (options.static_graph) reducer_->set_static_graph();
  logger_ = attach_logger(reducer_, options);
  bucket_sizes_ = logger_->get_bucket_sizes();
}

BucketReducer::~BucketReducer() = default;

// The times of the iteration before are taken when the next one begins.
void BucketReducer::begin_iteration() {
  logger_->set_runtime_stats_and_log();
  reducer_->prepare_for_forward();
}

bool BucketReducer::rebuild_buckets() {
  if (!reducer_->rebuild_buckets()) return false;
  rebuilt_bucket_sizes_ = logger_->get_bucket_sizes();
  return true;
}

void BucketReducer::prepare_backward(const at::Tensor& loss, int divisor) {
  if (!std::exchange(is_iteration_begun_, false)) begin_iteration();
  hook_->set_divisor(divisor);
  rebuild_buckets();
  reducer_->prepare_for_backward(walks_graph() ? std::vector<at::Tensor>{loss} : std::vector<at::Tensor>{});
  if (!std::exchange(has_begun_backward_, true) && options_.static_graph) delay_first_reduction(loss);
}

// The first averaged backward of a static graph only counts gradients; they are reduced when it is over.
void BucketReducer::delay_first_reduction(const at::Tensor& loss) {
  loss.register_hook([weak = std::weak_ptr(reducer_),
                      is_armed = std::make_shared<bool>(true)](const at::Tensor& gradient) {
    // The graph may be kept for another backward, and may outlive the reducer.
    const auto reducer = std::exchange(*is_armed, false) ? weak.lock() : nullptr;
    if (!reducer) return gradient;
    torch::autograd::Engine::get_default_engine().queue_callback([reducer] { reducer->delay_all_reduce(); });
    return gradient;
  });
}

void BucketReducer::end_step() {
  if (!std::exchange(is_iteration_begun_, true)) begin_iteration();
}

// A rank that has no count of its own would take its next backward for the first one.
void BucketReducer::refuse_unlearnt_graph() const {
  if (!options_.static_graph || has_begun_backward_) return;
  throw ConfigError("parallel",
                    {.what = "static_graph under Join: a rank ran out of batches before it learnt the graph",
                     .expected = "one averaged backward on every rank at least",
                     .got = "none",
                     .where = "rank " + std::to_string(comm_.rank())});
}

// The order of collectives is that of a true backward: all buckets are started, then who uses which parameter
// is summed, then buckets are finished.
void BucketReducer::shadow_backward(int divisor, bool keeps_gradients) {
  refuse_unlearnt_graph();
  hook_->set_divisor(divisor);
  rebuild_buckets();
  auto buckets = reducer_->get_grad_buckets(/*return_zero_tensors=*/true);
  for (auto& bucket : buckets) hook_->runHook(bucket);
  const auto used = walks_graph() ? shadow_used_map() : at::Tensor();
  for (auto& bucket : buckets) {
    auto averages = hook_->finish(bucket.getIndex());
    bucket.setBuffer(averages);
    if (keeps_gradients) keep_gradients(bucket, used);
  }
  reducer_->push_rebuilt_params_for_all_indices();
}

at::Tensor BucketReducer::shadow_used_map() {
  auto used = at::zeros({static_cast<std::int64_t>(trained_.size())}, at::kInt);
  comm_.all_reduce(used);
  return used;
}

// As the Reducer does: what no rank used keeps the gradient it had.
void BucketReducer::keep_gradients(c10d::GradBucket& bucket, const at::Tensor& used) {
  const at::NoGradGuard no_grad;
  const auto parameters = bucket.getParameters();
  const auto gradients = bucket.getGradients();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto same = [&](const NamedTensor& named) { return named.tensor.is_same(parameters[i]); };
    const auto index = std::find_if(trained_.begin(), trained_.end(), same) - trained_.begin();
    if (used.defined() && used[index].item<int>() == 0) continue;
    auto& gradient = trained_[static_cast<std::size_t>(index)].tensor.mutable_grad();
    if (!gradient.defined()) gradient = at::empty_like(parameters[i]);
    gradient.copy_(gradients[i]);
  }
}

}  // namespace lockstep::detail
