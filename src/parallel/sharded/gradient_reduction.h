// The gradients of all units during one backward: noticing when a unit's are complete, and sending them in an
// order that all ranks share.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <lockstep/parallel/autograd.h>

#include "parallel/sharded/flat_gradient.h"
#include "parallel/sharded/residency.h"

namespace lockstep::detail {

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
