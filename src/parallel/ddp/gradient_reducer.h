// GradientReducer: averages the gradients of a model over ranks while backward runs, bucket by bucket. What
// c10d::Reducer is to DistributedDataParallel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include <torch/csrc/autograd/variable.h>

#include <lockstep/parallel/ddp/comm_hook.h>
#include <lockstep/parallel/ddp/ddp.h>

#include "parallel/ddp/gradient_bucket.h"
#include "parallel/ddp/reduction_log.h"
#include "parallel/module_states.h"

namespace lockstep::detail {

/// Calls back whenever a backward is done with the gradient of a parameter, also where that is undefined,
/// after all hooks of the parameter. In the thread that accumulates.
class GradientArrivals {
 public:
  using Arrived = std::function<void(std::size_t index)>;
  /// The tensors require gradients now; those that are frozen later do not arrive.
  GradientArrivals(const std::vector<NamedTensor>& trained, Arrived arrived);
  ~GradientArrivals();
  GradientArrivals(const GradientArrivals&) = delete;
  GradientArrivals& operator=(const GradientArrivals&) = delete;

 private:
  struct Registered {
    decltype(torch::autograd::impl::grad_accumulator(at::Tensor())) accumulator;
    std::uintptr_t key;
  };

  Arrived arrived_;
  std::vector<Registered> registered_;
};

/// Buckets are reduced in one order, which is the same on all ranks: a bucket is sent as soon as its
/// gradients and those of all buckets before it are there, and the models of one backward send one after the
/// other.
///
/// Gradients are averaged where they lie, by one collective per bucket, unless a comm hook of the options
/// wants to see them in a flat tensor, they are to be views of one, or they are on a device.
class GradientReducer {
 public:
  /// Plans buckets and follows the gradients of `trained`, which is not empty and outlives this. Local.
  GradientReducer(const std::vector<NamedTensor>& trained, const Communicator& comm, const Ddp& options,
                  CommHook hook);

  /// Before an averaged backward from `loss`, whose averages are sums over `divisor`; models send in the
  /// order of these calls, `before` names the one before this. Collective when buckets are planned anew.
  /// @throws ConfigError naming a parameter that a static graph would leave local
  void prepare_backward(const at::Tensor& loss, int divisor, GradientReducer* before);

  /// When every gradient has come: sends what has not been sent. @throws CommError, ConfigError naming what
  /// got no gradient
  void complete_backward();

  /// Then: blocks until all is averaged.
  void finish_backward();

  /// Then, or when anything has thrown.
  void end_backward();

  /// After a step.
  void end_step() { log_.end_step(); }

  /// Whether the averaged backward that a static graph is learnt from is still to come.
  bool is_learning() const { return options_.static_graph && !has_learnt_graph_; }

  /// Takes part in an averaged backward of other ranks with the gradients that the parameters have, or
  /// zeros; the averages become the gradients. Collective, blocking. Not while is_learning().
  void shadow_backward(int divisor);

  void fill(DdpLoggingData& data) const;

 private:
  struct Place {
    std::size_t bucket, member;
  };

  void make_buckets(const BucketPlan& plan);
  void rebuild_buckets();
  void begin_pass(int divisor, GradientReducer* before, bool counts_own);
  void find_unused(const at::Tensor& loss);
  bool walks_graph() const { return options_.find_unused_parameters && !options_.static_graph; }
  Averaging averaging() const;

  void arrived(std::size_t index);
  void count_arrival(std::size_t index);
  void note_order(std::size_t index);
  void take(std::size_t index);
  bool has_turn() const { return before_ == nullptr || before_->has_sent_all_; }
  std::size_t sent_early() const;
  bool skips(std::size_t bucket) const;
  void send_ready();
  void send_rest();
  void end_sending();
  void learn_graph();

  void agree_on_used();
  std::vector<std::int64_t> bucket_sizes() const;
  bool is_used(std::size_t index) const;
  void refuse_local_gradients() const;
  void refuse_missing_gradients() const;

  const std::vector<NamedTensor>& trained_;
  std::unordered_map<const at::TensorImpl*, std::size_t> indices_;  // of parameters in trained_
  Communicator comm_;
  Ddp options_;
  CommHook hook_;  // null: gradients are averaged where they lie
  std::vector<GradientBucket> buckets_;
  BucketPlan plan_;
  std::vector<Place> places_;                     // by parameter
  std::vector<std::int64_t> first_bucket_sizes_;  // bytes, as planned before the first backward
  bool has_rebuilt_buckets_ = false;
  ReductionLog log_;

  // Of the backward that runs. The threads of autograd share it.
  std::mutex mutex_;
  bool is_open_ = false;
  bool has_any_ = false;  // gradients have come
  int divisor_ = 1;
  GradientReducer* before_ = nullptr;  // the model that sends before this one
  GradientReducer* after_ = nullptr;   // and after it
  std::size_t next_bucket_ = 0;        // to be sent
  bool has_sent_all_ = false;
  std::vector<std::uint8_t> is_ready_;   // by parameter
  std::vector<std::uint8_t> is_unused_;  // by parameter: this rank's graph leaves it out
  std::vector<int> missing_;             // by parameter: gradients that a static graph has in store for it
  std::vector<std::size_t> order_;       // in which gradients were ready

  at::Tensor used_;            // by how many ranks each parameter is used; undefined: by all
  std::vector<int> arrivals_;  // by parameter, in each backward of the static graph
  bool has_learnt_graph_ = false;
  bool has_order_ = false;     // a backward is over that buckets can be planned by
  GradientArrivals followed_;  // last: it calls this
};

/// The cap of a bucket. @throws ConfigError
std::int64_t bucket_bytes(const Ddp& options);

}  // namespace lockstep::detail
