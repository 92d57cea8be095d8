// A CommHook as c10d's Reducer sees it.
#pragma once

#include <functional>
#include <vector>

#include <lockstep/parallel/ddp/comm_hook.h>

#include "comm/compat.h"

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

}  // namespace lockstep::detail
