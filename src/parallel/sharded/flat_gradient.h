// FlatGradient: the gradients of a FlatParameter on their way to the shards.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/comm/communicator.h>
#include <lockstep/parallel/sharded/mixed_precision.h>

#include "parallel/sharded/flat_parameter.h"
#include "parallel/sharded/row_reduction.h"
#include "parallel/sharded/shard_layout.h"
#include "parallel/sharded/shard_memory.h"

namespace lockstep::detail {

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
  /// the cache, and so that its memory is free for the next one.
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
  const at::Tensor& own_flags();
  void fill_flags();
  void give_back(MemoryPool& pool);
  void take_average(std::size_t member, const at::Tensor& average);

  FlatParameter& flat_;
  const ShardMesh& mesh_;
  at::ScalarType dtype_;          // of the row
  at::ScalarType landing_type_;   // of the chunk
  at::ScalarType gradient_type_;  // of the pieces' gradients
  std::int64_t flags_;
  std::unique_ptr<RowReduction> reduction_;
  std::vector<bool> is_filled_;    // members, in the row
  std::vector<bool> last_filled_;  // and what flags_of_last_ tells
  at::Tensor flags_of_last_;
  at::Tensor row_;       // what is to be sent
  at::Tensor chunk_;     // what comes
  at::Tensor averages_;  // where the pieces' gradients lie; kept, since every step needs it
};

}  // namespace lockstep::detail
