// What a ShardedEngine consists of, and what looks at whole tensors where every rank has pieces: the norm of
// gradients, and optimizers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/comm/communicator.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/parallel/sharded/sharded_engine.h>

#include "device/step_recording.h"
#include "parallel/activations/block_segments.h"
#include "parallel/activations/offloaded_activations.h"
#include "parallel/module_states.h"
#include "parallel/replica_check.h"
#include "parallel/sharded/flat_parameter.h"
#include "parallel/sharded/gradient_reduction.h"
#include "parallel/sharded/residency.h"
#include "parallel/sharded/shardable.h"
#include "parallel/sharded/unit_plan.h"

namespace lockstep::detail {

/// A member of a FlatParameter.
struct PieceRef {
  FlatParameter* flat;
  std::size_t member;
};

/// `mine` has a row for each block of kGradNormBlock elements of this rank's `pieces`, in order; returns
/// every shard's, in the order of pieces and, within one, of elements. All pieces have gradients. Collective;
/// blocking for tensors of the CPU.
at::Tensor joined_blocks(std::span<const PieceRef> pieces, const at::Tensor& mine, const Communicator& comm);

/// The 2-norm of the gradients of `pieces`, with the bits of grad_norm() on the whole; any other p-norm in
/// float64. `comm` is that of the ranks that hold the shards. Collective, blocking.
/// @throws ConfigError unless norm_type > 0
double sharded_grad_norm(std::span<const PieceRef> pieces, double norm_type, const Communicator& comm);

/// The 2-norm of gradients on a device, float64 without dimensions; the host waits for nobody. Collective.
at::Tensor sharded_norm_on_device(std::span<const PieceRef> pieces, const Communicator& comm);

/// Members by their names.
using PieceTable = std::unordered_map<std::string, PieceRef>;

/// `whole`, a member's elements, flat, as the pieces that ranks have: views, by shard.
std::vector<at::Tensor> pieces_of_all(const PieceRef& ref, const at::Tensor& whole);

class ShardExchange final : public PieceExchange {
 public:
  /// `pieces` lives as long as the parameters are sharded; `comm` is that of the ranks that hold the shards.
  ShardExchange(std::weak_ptr<const PieceTable> pieces, Communicator comm)
      : pieces_(std::move(pieces)), comm_(std::move(comm)) {}

  std::vector<std::int64_t> shape_of(const std::string& parameter) const override;
  at::Tensor join_blocks(std::span<const std::string> parameters, const at::Tensor& mine) override;
  void change_whole(std::span<Part> parts, const Change& change) override;

 private:
  PieceRef piece_of(const std::string& parameter) const;
  /// Each rank changes the whole of one of `dealt`, by rank; fewer than ranks leave the last ones idle.
  void change_dealt(std::span<Part* const> dealt, const Change& change) const;

  std::weak_ptr<const PieceTable> pieces_;
  Communicator comm_;
};

}  // namespace lockstep::detail

namespace lockstep {

struct ShardedEngine::Impl {
  Impl(const torch::nn::Module& module, Communicator ranks, const ShardingPlan& chosen);
  detail::ShardMesh checked_mesh() const;
  detail::ShardMesh make_whole_mesh() const;
  bool has_whole_group() const;
  void cast_buffers(const std::unordered_set<const at::TensorImpl*>& own_dtype);
  void cut(std::vector<detail::PlannedUnit> planned,
           const std::unordered_set<const at::TensorImpl*>& own_dtype, const detail::LateParameters& late);
  void enter(const detail::PieceRef& ref);
  void mark_pieces_for_optimizers() const;
  const detail::PieceRef& piece_of(const std::string& name) const;
  /// Nothing where it is not sharded here.
  std::optional<detail::PieceRef> find(const at::Tensor& parameter) const;
  detail::PieceRef piece_of(const at::Tensor& parameter) const;
  std::vector<detail::PieceRef> refs_of(std::span<const NamedParameter> parameters) const;
  void require_room(std::uint64_t bytes_of_rank, const char* of_what) const;
  void check_lives() const;
  /// @throws ConfigError naming what is no longer what was sharded
  void check_module();
  void begin(const at::Tensor& loss);
  void finish();
  void abandon() noexcept;
  void await_device();
  void end_pass();
  void broadcast_buffers() const;
  /// Of captured steps: nothing is gathered any more, and no memory that a recording has used is used again.
  void forget_computed(bool is_given_up) noexcept;
  void watch_replicas(std::vector<detail::MemberPlace> members);
  /// Whether ranks train the same parameters. Collective, blocking.
  /// @throws CollectiveMismatch naming the first that they do not
  void compare_trained() const;

  ShardingPlan plan;
  Communicator comm;
  detail::ModuleStates states;
  std::optional<detail::ModuleLists> lists;  // once all is cut
  std::shared_ptr<const StateSwap> swap;     // these two before the mesh: who is refused leaves
  std::unique_ptr<detail::OffloadedActivations> offloaded;  // nobody connecting
  detail::ShardMesh mesh;
  detail::ShardMesh whole_mesh;  // of what is not sharded
  int ranks_on_disk;             // that offload there
  at::Device device;
  detail::ShardMemory memory;
  detail::MemoryPool pool;
  std::vector<detail::ShardedUnit> units;
  detail::Residency residency;
  std::optional<detail::GradientReduction> gradients;
  std::optional<detail::BlockSegments> checkpointed;
  std::optional<detail::ReplicaCheck> replicas;  // where several ranks hold the same
  std::shared_ptr<detail::PieceTable> pieces =
      std::make_shared<detail::PieceTable>();  // exchanges ask whether it is there
  std::unordered_map<const at::TensorImpl*, detail::PieceRef> by_tensor;
  std::vector<std::pair<at::Tensor, at::ScalarType>> cast_from;  // buffers, and what they were
  std::weak_ptr<PendingScales> pending_scales;
  std::int64_t steps = 0;
  int local_scopes = 0;
  bool is_over = false;
  detail::RecordingListener listener{[this](bool is_given_up) { forget_computed(is_given_up); }};
};

}  // namespace lockstep
