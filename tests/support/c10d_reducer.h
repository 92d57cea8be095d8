// c10d's Reducer, which averages gradients in PyTorch, over collectives of lockstep: what ours is compared
// with.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <lockstep/comm/communicator.h>
#include <lockstep/parallel/ddp/ddp.h>

#include "comm/compat.h"

#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

namespace lockstep::test {

/// The arguments of c10d::Reducer that we set.
struct ReducerArgs {
  std::vector<at::Tensor> parameters;
  std::vector<std::vector<std::size_t>> buckets;
  c10::intrusive_ptr<c10d::ProcessGroup> process_group;
  std::int64_t bucket_bytes_cap = c10d::kDefaultBucketBytesCap;
  std::int64_t first_bucket_bytes_cap = c10d::kDefaultFirstBucketBytes;
  bool find_unused_parameters = false;
  bool gradient_as_bucket_view = false;
  bool skip_all_reduce_unused_params = false;
  std::unordered_map<std::size_t, std::string> names;
};

/// Builds a Reducer with whichever of the known constructors is there. A template, so that the calls
/// of the others are never compiled.
template <class Reducer = c10d::Reducer>
std::shared_ptr<Reducer> make_reducer(ReducerArgs args) {
  const std::vector<bool> sparse(args.parameters.size(), false);
  const auto build = [&](auto... drifting) {
    return std::make_shared<Reducer>(std::move(args.parameters), std::move(args.buckets),
                                     std::move(args.process_group), sparse, args.bucket_bytes_cap,
                                     args.find_unused_parameters, args.gradient_as_bucket_view,
                                     std::move(args.names), args.first_bucket_bytes_cap, drifting...);
  };
  using Buckets = std::vector<std::vector<std::size_t>>;
  using Names = std::unordered_map<std::size_t, std::string>;
  using ProcessGroup = c10::intrusive_ptr<c10d::ProcessGroup>;
  using Tensors = std::vector<at::Tensor>;
  using Flags = std::vector<bool>;
  using Caps = std::vector<std::int64_t>;
  constexpr bool kTakesCaps =
      std::is_constructible_v<Reducer, Tensors, Buckets, ProcessGroup, Flags, std::int64_t, bool, bool, Names,
                              std::int64_t, bool, bool, Caps>;
  constexpr bool kTakesFlags =
      std::is_constructible_v<Reducer, Tensors, Buckets, ProcessGroup, Flags, std::int64_t, bool, bool, Names,
                              std::int64_t, bool, bool>;
  if constexpr (kTakesCaps) {
    return build(args.skip_all_reduce_unused_params, /*use_python_reducer=*/false, Caps{});
  } else if constexpr (kTakesFlags) {
    return build(args.skip_all_reduce_unused_params, /*use_python_reducer=*/false);
  } else {
    return build();
  }
}

class DoneWork final : public c10d::Work {
 public:
  bool isCompleted() override { return true; }
  bool wait(std::chrono::milliseconds /*none*/) override { return true; }
};

/// The two collectives that a Reducer calls besides its hook: of the order of buckets, and of the map of used
/// parameters.
class ReducerBackend final : public c10d::Backend {
 public:
  explicit ReducerBackend(Communicator comm) : Backend(comm.rank(), comm.size()), comm_(std::move(comm)) {}
  const std::string getBackendName() const override { return "lockstep"; }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    comm_.broadcast(tensors.at(0), static_cast<int>(options.rootRank));
    return c10::make_intrusive<DoneWork>();
  }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& /*a sum*/) override {
    comm_.all_reduce(tensors.at(0));
    return c10::make_intrusive<DoneWork>();
  }

 private:
  Communicator comm_;
};

/// Averages each bucket at once, in the order of the ranks.
class AveragingHook final : public c10d::CommHookInterface {
 public:
  explicit AveragingHook(Communicator comm) : comm_(std::move(comm)) {}
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    auto done = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get());
    comm_.all_reduce(bucket.getBuffer(), ReduceOp::kAvg);
    done->markCompleted(bucket.getBuffer());
    return done;
  }
  at::Tensor parseHookResult(const c10::IValue& result) override { return result.toTensor(); }

 private:
  Communicator comm_;
};

/// The steps that DistributedDataParallel takes around a Reducer, without its broadcasts.
class C10dDdp {
 public:
  C10dDdp(const torch::nn::Module& module, const Communicator& comm, const Ddp& options) : options_(options) {
    auto group = c10::make_intrusive<c10d::ProcessGroup>(comm.rank(), comm.size());
    group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
    group->setBackend(c10::kCPU, c10d::ProcessGroup::BackendType::CUSTOM,
                      c10::make_intrusive<ReducerBackend>(comm));
    group->setGroupName("c10d_ddp");
    ReducerArgs args{.parameters = module.parameters(), .buckets = {}, .process_group = group, .names = {}};
    args.bucket_bytes_cap = static_cast<std::int64_t>(options.bucket_cap_mb * (1 << 20));
    args.first_bucket_bytes_cap = args.bucket_bytes_cap;
    args.find_unused_parameters = options.find_unused_parameters;
    args.gradient_as_bucket_view = options.gradient_as_bucket_view;
    args.buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(
        args.parameters, {static_cast<std::size_t>(args.bucket_bytes_cap)}));
    std::reverse(args.buckets.begin(), args.buckets.end());
    reducer_ = make_reducer(std::move(args));
    reducer_->register_comm_hook(std::make_unique<AveragingHook>(comm));
    if (options.static_graph) reducer_->set_static_graph();
    logger_ = std::make_shared<c10d::Logger>(reducer_);
    reducer_->set_logger(logger_);
    logger_->set_construction_data_and_log("", {}, -1, false, false, options.static_graph);
  }

  void backward(const at::Tensor& loss) {
    reducer_->prepare_for_forward();
    reducer_->rebuild_buckets();
    const bool walks = options_.find_unused_parameters && !options_.static_graph;
    reducer_->prepare_for_backward(walks ? std::vector<at::Tensor>{loss} : std::vector<at::Tensor>{});
    loss.backward();
    if (options_.static_graph && is_first_) reducer_->delay_all_reduce();
    is_first_ = false;
  }

 private:
  Ddp options_;
  std::shared_ptr<c10d::Reducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;
  bool is_first_ = true;
};

}  // namespace lockstep::test
