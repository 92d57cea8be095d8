// The gradients of sharded units on their way to the shards: how rows of all ranks become averages, the
// gradients of one FlatParameter, and those of all units during a backward, in an order that all ranks share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/comm/communicator.h>
#include <lockstep/parallel/autograd.h>
#include <lockstep/parallel/sharded/fsdp.h>
#include <lockstep/parallel/sharded/sharding_plan.h>

#include "device/own_kernels.h"
#include "parallel/sharded/flat_parameter.h"
#include "parallel/sharded/residency.h"
#include "parallel/sharded/shard_layout.h"
#include "parallel/sharded/shard_memory.h"

namespace lockstep::detail {

/// One reduction at a time: start(), go_on(), finish(), or drop() after any of them.
class RowReduction {
 public:
  virtual ~RowReduction() = default;

  /// Takes `row` over, which holds one chunk for each shard and is given back to `pool`; what comes of it
  /// lands in `chunk`. `number` is equal on all ranks and names the unit. Collective, asynchronous.
  virtual void start(MemoryPool& pool, at::Tensor row, at::Tensor chunk, std::int64_t number) = 0;
  /// Begins the second half, if there is one. Blocking for the first. Collective, asynchronous.
  virtual void go_on() = 0;
  /// Waits until the chunk holds what came of them. Blocking.
  virtual void finish(MemoryPool& pool) = 0;
  /// Waits for what is under way, and forgets it and what earlier reductions have left for later ones. Errors
  /// of the group are not told again. Also when none is under way.
  void drop(MemoryPool& pool) noexcept;
  /// Forgets what earlier reductions have left for later ones, such as errors that are made good. Between
  /// reductions.
  virtual void forget_past() {}

 protected:
  /// Memory of the pool until the end.
  at::Tensor hold(at::Tensor buffer);
  /// One of them before the end.
  void give_back(MemoryPool& pool, const at::Tensor& buffer);
  void give_back(MemoryPool& pool);

  /// Memory of the pool is given back: nobody may use it any more.
  virtual void forget_buffers() {}

  at::Tensor chunk_;
  Work work_;

 private:
  std::vector<at::Tensor> held_;
};

/// By a reduce-scatter among the ranks that shard, then an all-reduce among copies. `op`: kAvg or kSum.
std::unique_ptr<RowReduction> plain_reduction(const ShardMesh& mesh, ReduceOp op);

/// What is in a chunk.
struct ChunkShape {
  std::int64_t numbers;  ///< that are quantised
  std::int64_t exact;    ///< float32 in effect; they follow
};

/// In 4 bits, among ranks that shard, without copies (qgZ): an exchange among neighbours, whose sums are
/// exchanged in 4 bits again by those that are far. Sums are float32, in the order of ranks.
std::unique_ptr<RowReduction> quantized_reduction(const ShardMesh& mesh, ChunkShape shape,
                                                  const std::optional<ErrorFeedback>& feedback);

/// Sums over ranks the gradients that the module's tensors have, and gives each rank those of its pieces.
///
/// What travels to a rank is its shard of the row, followed by one number per parameter that says whether
/// the sender has a gradient for it: a parameter that no rank used keeps an undefined gradient.
class FlatGradient {
 public:
  /// Gradients travel in the type that `mixed` says, by default the members', or quantised if `flat` says so.
  FlatGradient(FlatParameter& flat, const MixedPrecision& mixed, ReduceOp op,
               const ZeroPlusPlus& options = {});

  /// Takes the gradient of `member` off the module's tensor, where that needs no conversion: while it is in
  /// the cache, and so that its memory is free for the next one. Not where a kernel takes those of many
  /// members at once, in start().
  void take_early(MemoryPool& pool, std::size_t member);
  /// Whether it has taken something since the last start().
  bool has_row() const { return row_.defined(); }
  /// Takes the other gradients off the module's tensors and sends all. `number` is equal on all ranks and
  /// names the unit. Collective, asynchronous.
  void start(MemoryPool& pool, std::int64_t number);
  /// Goes on to ranks that are further away, where there are any. Blocking for what came before.
  void go_on() { reduction_->go_on(); }
  /// Waits for what is under way, and adds the averages to the gradients of the pieces. Blocking.
  void land(MemoryPool& pool);
  /// Forgets what take_early() took. After it, and no start().
  void drop_early(MemoryPool& pool) noexcept;
  /// After start(), whether it threw or not: waits for what is under way, and forgets it and what it has left
  /// for the next time. Errors of the group are not told again.
  void discard(MemoryPool& pool) noexcept;
  /// Forgets what earlier reductions have left for later ones.
  void forget_past() { reduction_->forget_past(); }
  /// Forgets which gradients there were the last time.
  void forget_flags() { flags_of_last_.reset(); }
  /// Drops gradients that have not been sent.
  void drop();
  /// Drops those of the pieces.
  void drop_averages();

  /// Whether there is nothing to send: the members are frozen for now, and none has a gradient.
  bool is_idle() const;

  /// Takes memory for the pieces' gradients, which otherwise comes with the first of them.
  /// @throws IoError where it is to be in a file, and there is no room
  void take_memory();
  /// What take_memory() would take.
  std::int64_t bytes_to_take() const;

  std::int64_t row_bytes() const;
  /// Of the averages that the pieces have.
  std::int64_t average_bytes() const;
  const std::string& name_of(std::size_t member) const { return flat_.members()[member].name; }

 private:
  std::int64_t chunk_elements() const { return flat_.layout().shard_elements() + flags_; }
  bool lands_in_place() const;
  void take_row(MemoryPool& pool);
  at::Tensor chunk_for(int shard) const;
  void fill(std::size_t member, const at::Tensor& gradient);
  void copy_noted();
  const at::Tensor& own_flags();
  void fill_flags();
  /// `last_use`: of the chunk, by another stream.
  void give_back(MemoryPool& pool, std::shared_ptr<c10::Event> last_use = nullptr);
  void take_average(std::size_t member, const at::Tensor& average);

  FlatParameter& flat_;
  const ShardMesh& mesh_;
  at::ScalarType dtype_;          // of the row
  at::ScalarType landing_type_;   // of the chunk
  at::ScalarType gradient_type_;  // of the pieces' gradients
  std::int64_t flags_;
  std::unique_ptr<RowReduction> reduction_;
  std::vector<bool> is_filled_;     // members, in the row
  std::vector<bool> last_filled_;   // and what flags_of_last_ tells
  std::vector<TensorCopy> copies_;  // into the row, that are made at once
  at::Tensor flags_of_last_;
  at::Tensor row_;       // what is to be sent
  at::Tensor chunk_;     // what comes
  at::Tensor averages_;  // where the pieces' gradients lie; kept, since every step needs it
};

class GradientReduction {
 public:
  /// Follows the trained parameters of `units`, whose gradients travel and are kept as `mixed` says.
  GradientReduction(std::vector<ShardedUnit>& units, MemoryPool& pool, Residency& residency,
                    const MixedPrecision& mixed, const ShardMesh& mesh, ReduceOp op,
                    const ZeroPlusPlus& options = {});

  /// Gradients of the backward from `loss`, which is about to run, and those that have accumulated until
  /// now, are to be averaged.
  /// Without a loss: what has accumulated is to be averaged, and no backward comes.
  void begin(const at::Tensor& loss);
  /// It ran: sends what is left, waits, and gives the pieces the rest of their gradients. Collective,
  /// blocking.
  void finish();
  /// It failed: waits for what is under way, and forgets all gradients, also those that the pieces have: some
  /// of this backward are part of them.
  void abandon() noexcept;

  /// Forgets what earlier backwards have left for later ones: errors of quantised gradients.
  void forget_past();
  /// Forgets what lies on the device of which gradients there were.
  void forget_flags();
  /// Forgets gradients that wait on the module's tensors for a backward that averages.
  void drop_accumulated();

  /// Takes memory for all gradients that the pieces will have. @throws IoError as FlatGradient's
  void take_memory();
  /// What take_memory() would take.
  std::int64_t bytes_to_take() const;

  std::int64_t reductions() const { return reductions_; }
  std::int64_t reduced_bytes() const { return reduced_bytes_; }
  /// Of the averages that the pieces have.
  std::int64_t average_bytes() const;

 private:
  // One FlatParameter that is trained.
  struct Flow {
    std::size_t unit;
    FlatGradient gradient;
    std::vector<bool> missing = {};  // members whose gradients are to come
    std::size_t missing_count = 0;
    bool is_complete = false;
    bool is_sent = false;
    bool is_left_out = false;  // frozen for now
    bool was_shown = false;    // by the graph of a backward, if not this one
  };

  void watch(std::size_t flow, std::size_t member, const at::Tensor& parameter);
  void expect(const at::Tensor& loss);
  void arrive(std::size_t flow, std::size_t member);
  void take_early(Flow& flow, std::size_t member);
  void send_complete();
  bool may_go(const Flow& flow) const;
  void send(std::size_t flow);
  template <class Reduce>
  void name_units(const Reduce& reduce) const;
  void go_on();
  void land_oldest();
  void agree_on_order();

  std::vector<ShardedUnit>& units_;
  const ShardMesh& mesh_;
  MemoryPool& pool_;
  Residency& residency_;
  std::vector<Flow> flows_;
  std::unordered_map<const at::TensorImpl*, std::pair<std::size_t, std::size_t>> places_;
  std::vector<ScopedHandle> hooks_;

  std::vector<std::size_t> order_;      // in which flows are sent; the same on all ranks
  std::vector<std::size_t> completed_;  // in this backward, in order
  std::size_t sent_ = 0;                // of order_
  std::vector<std::size_t> under_way_;
  bool is_running_ = false;
  bool is_backward_ = false;
  bool has_order_ = false;  // of a backward, instead of that of registration
  std::int64_t reductions_ = 0;
  std::int64_t reduced_bytes_ = 0;
};

}  // namespace lockstep::detail
