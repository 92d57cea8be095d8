// c10d's Reducer and Logger, and what has to be done around them in a step.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include <lockstep/parallel/autograd.h>
#include <lockstep/parallel/ddp/comm_hook.h>
#include <lockstep/parallel/ddp/ddp.h>

#include "comm/compat.h"
#include "parallel/module_states.h"

namespace lockstep::detail {

// The order in which the models of one backward send.

/// Gradients of several models become ready in the order of each rank's own graph; collectives must come in
/// one order everywhere. So each model sends in its turn: what it wants to send earlier waits.
class ReductionTurn {
 public:
  /// Before a backward: the turn comes when that of `before` has ended; null: at once.
  void begin(ReductionTurn* before);

  /// Runs `send`, now or when the turn comes.
  void send(std::function<void()> send);

  /// Nothing more follows in this backward: the next model's turn comes.
  void end();

  bool has_come() const { return has_come_; }
  bool has_ended() const { return has_ended_; }

 private:
  void come();

  ReductionTurn* next_ = nullptr;
  std::vector<std::function<void()>> waiting_;
  bool has_come_ = false;
  bool has_ended_ = false;  // which may be before it comes
};

class HookAdapter;

/// What a backward is to its hook.
struct HookPass {
  int divisor = 1;          ///< GradBucket::divisor()
  std::size_t buckets = 0;  ///< how many there are
  bool ends_with_used_map = false;
  HookAdapter* before = nullptr;  ///< the model in the same backward that sends before this one
};

/// The Reducer wants a future per bucket, waits for it when backward is over, and has its value parsed. Ours
/// is done from the start and only tells which bucket to finish: so the wait happens in parseHookResult(),
/// where it can work off the communicator's queue instead of sleeping.
class HookAdapter final : public c10d::CommHookInterface {
 public:
  HookAdapter(CommHook hook, Communicator comm) : hook_(std::move(hook)), comm_(std::move(comm)) {}

  /// Before every backward.
  void begin(const HookPass& pass);

  /// Starts the reduction of a bucket, in its turn.
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override;
  /// Starts to sum who uses which parameter, in its turn.
  void start_used_map(const at::Tensor& map);
  /// Blocks until it is summed.
  void finish_used_map();

  at::Tensor parseHookResult(const c10::IValue& result) override;
  /// Waits for the bucket of that index and returns its averages.
  at::Tensor finish(std::size_t index);

  /// All is started, or waits for its turn.
  bool is_complete() const { return turn_.has_ended(); }
  /// The last bucket was finished.
  bool is_finished() const { return is_finished_; }

 private:
  struct Slot {
    FinishReduction finish;
    at::Tensor buffer, averages;
  };

  void start(c10d::GradBucket& bucket, std::size_t index);
  void finish(Slot& slot, std::size_t index) const;
  void finish_all();

  CommHook hook_;
  Communicator comm_;
  HookPass pass_;
  ReductionTurn turn_;
  std::vector<Slot> slots_;  // by index of bucket
  std::size_t next_index_ = 0;
  bool is_finished_ = false;
  Work used_map_;
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> tickets_;
};

// Watches gradients as they come.

/// Told of every gradient that a backward accumulates. Refuses, naming the parameter, what a Reducer would
/// take silently or not understand.
class GradientArrivals {
 public:
  /// `trained` require gradients now, and outlive the object.
  GradientArrivals(const std::vector<NamedTensor>& trained, const HookAdapter& hook);
  GradientArrivals(const GradientArrivals&) = delete;
  GradientArrivals& operator=(const GradientArrivals&) = delete;

  /// Around a backward that averages; others are no business of this.
  void begin() { is_open_ = true, has_any_ = false; }
  void end() { is_open_ = false; }

  /// Whether this backward gave a gradient to any parameter.
  bool has_any() const { return has_any_; }

 private:
  void arrived(const NamedTensor& named);

  const HookAdapter& hook_;
  std::vector<ScopedHandle> handles_;
  bool is_open_ = false;
  bool has_any_ = false;
};

class BucketReducer {
 public:
  /// Plans buckets and hooks itself into the parameters. Local. `trained` is not empty and outlives this.
  BucketReducer(const std::vector<NamedTensor>& trained, const Communicator& comm, const Ddp& options,
                CommHook hook);
  /// Takes the hooks away.
  ~BucketReducer();

  /// Before an averaged backward from `loss`, whose averages are sums over `divisor` and travel after those
  /// of `before`, if any. Collective when buckets are rebuilt.
  /// @throws ConfigError naming a parameter that a static graph would leave local
  void prepare_backward(const at::Tensor& loss, int divisor, BucketReducer* before);

  /// Within that backward, when every gradient has come and nothing was waited for: sees to it that all is
  /// averaged. @throws CommError, ConfigError naming what got no gradient
  void complete_backward();

  /// After it.
  void end_backward() { arrivals_->end(); }

  /// After a step: takes its times.
  void end_step();

  /// Whether the averaged backward that a static graph is learnt from is still to come.
  bool is_learning() const { return options_.static_graph && !has_learnt_graph_; }

  /// Takes part in an averaged backward of other ranks with the gradients that the parameters have, or
  /// zeros; the averages become the gradients. Collective, blocking. Not while is_learning().
  void shadow_backward(int divisor);

  void fill(DdpLoggingData& data) const;

 private:
  HookPass pass(int divisor, BucketReducer* before) const;
  void begin_iteration();
  void rebuild_buckets();
  bool walks_graph() const { return options_.find_unused_parameters && !options_.static_graph; }
  void learn_graph();
  void refuse_local_gradients() const;
  void take_part_without_gradient();
  void mark_used(const at::Tensor& map) const;
  c10::intrusive_ptr<c10d::Work> reduce_used_map(const at::Tensor& map);
  void add_own(c10d::GradBucket& bucket) const;
  void reduce_shadow_map();
  void keep(const c10d::GradBucket& bucket, const at::Tensor& averages) const;

  const std::vector<NamedTensor>& trained_;
  std::unordered_map<const at::TensorImpl*, std::int64_t> indices_;  // of parameters in trained_
  Communicator comm_;
  Ddp options_;
  HookAdapter* hook_ = nullptr;  // the Reducer's
  std::shared_ptr<c10d::Reducer> reducer_;
  std::unique_ptr<GradientArrivals> arrivals_;
  std::shared_ptr<c10d::Logger> logger_;
  std::vector<std::int64_t> bucket_sizes_, rebuilt_bucket_sizes_;  // bytes
  at::Tensor used_;  // the last map of used parameters: by how many ranks
  bool is_iteration_begun_ = false;
  bool has_learnt_graph_ = false;
};

/// The cap of a bucket. @throws ConfigError
std::int64_t bucket_bytes(const Ddp& options);

}  // namespace lockstep::detail
