// FlatParameter: parameters of a unit side by side, of which this rank keeps one shard.
//
// The module's tensors stay the same objects all along. What comes and goes is their memory: they lie in the
// gathered row while it is there, and nowhere otherwise. What an optimizer steps are views of the shard.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/comm/communicator.h>
#include <lockstep/parallel/dispatch/tensor_mark.h>

#include "parallel/sharded/row_gather.h"
#include "parallel/sharded/shard_layout.h"
#include "parallel/sharded/shard_memory.h"

namespace lockstep::detail {

/// One parameter of a module.
struct ShardedTensor {
  std::string name;   ///< in the module
  at::Tensor tensor;  ///< the module's own
};

/// The types of parameters, and what they travel as, where they are not their own.
struct ComputeDtype {
  std::optional<at::ScalarType> dtype = {};   ///< that operators see
  bool casts_arguments = true;                ///< theirs, to the same type
  std::optional<at::ScalarType> master = {};  ///< of the shard
  RowTravel travel = {};                      ///< theirs
  bool reduces_quantized = false;             ///< of their gradients
  bool keeps_row = false;  ///< gathered, they stay until the next step: the shard lies in the row
};

/// Called with each member before its shard is cut: gives it its values, if it has none yet.
using FetchParameter = std::function<void(const at::Tensor&)>;

class FlatParameter {
 public:
  /// Takes over `members`, all of one dtype, whose values are the same on all ranks: keeps this rank's shard
  /// and frees their memory. `handler` is told when they are used; `first_tag` is the tag of the first one,
  /// the others count on. The shard lies in `memory`. They lie in the type that `compute` names from now on,
  /// the shard in their own. Does not communicate, but for `fetch`.
  FlatParameter(std::vector<ShardedTensor> members, const ShardMesh& mesh, const ComputeDtype& compute,
                UseHandler& handler, std::size_t first_tag, ShardMemory& memory,
                const FetchParameter& fetch = {});
  /// Gives up: the tensors stay without memory unless restore() was called.
  ~FlatParameter();
  FlatParameter(const FlatParameter&) = delete;
  FlatParameter& operator=(const FlatParameter&) = delete;

  const std::vector<ShardedTensor>& members() const { return members_; }
  const ShardLayout& layout() const { return layout_; }
  const ShardMesh& mesh() const { return mesh_; }
  ShardMemory& memory() const { return memory_; }
  bool is_trained() const { return is_trained_; }
  /// Whether the members always have memory: nobody else has a shard of them.
  bool is_resident() const { return is_resident_; }

  /// This rank's elements of member `i`: a leaf that shares the shard's memory.
  const at::Tensor& piece(std::size_t i) const { return pieces_[i]; }
  /// Lets `piece`, which an optimizer holds, be that tensor: it takes the place of the one there is, with its
  /// elements, and without a gradient. `copy`: where its optimizer writes elements in 16 bits; null: nowhere.
  void take_over_piece(std::size_t i, at::Tensor piece, const std::shared_ptr<NarrowCopy>& copy);
  const ShardPiece& place(std::size_t i) const { return layout_.pieces(mesh_.shard())[i]; }
  /// Its copy in 16 bits that gathers start from, null where they start from the piece.
  std::shared_ptr<NarrowCopy> narrow_copy(std::size_t i) const {
    return narrow_ ? narrow_->copy(i) : nullptr;
  }
  std::int64_t narrow_bytes() const { return narrow_ ? narrow_->bytes() : 0; }
  /// Of a row that has its memory all the time.
  std::int64_t kept_row_bytes() const {
    return kept_row_.defined() ? static_cast<std::int64_t>(kept_row_.nbytes()) : 0;
  }

  /// The members' element type before the module was sharded.
  at::ScalarType own_dtype() const { return own_dtype_; }
  /// The members' element type while the module is sharded.
  at::ScalarType dtype() const { return dtype_; }
  /// Whether operators are to be given their other arguments in that type.
  bool casts_arguments() const { return casts_arguments_; }
  /// Whether gradients are to travel quantised.
  bool reduces_quantized() const { return reduces_quantized_; }

  /// Bytes of the whole row in the dtype of the members.
  std::int64_t gathered_bytes() const;

  /// Begins to gather. `number` is the same on all ranks and names the unit if they disagree. Collective,
  /// asynchronous.
  void start_gather(MemoryPool& pool, std::int64_t number);
  /// Waits for it, and lets the members lie in the row. Blocking.
  void finish_gather(MemoryPool& pool);
  /// Takes the row away. If it `overwrites`, who reads the old memory all the same reads NaN.
  void release(MemoryPool& pool, bool overwrites = false);
  /// Member `i` was written to, on all ranks alike: the shard takes its part. While gathered.
  void keep_written(std::size_t i);
  /// The shard may have changed: what neighbours keep of it is not used until it has been gathered again, nor
  /// what there is in 16 bits.
  void forget_copies();
  /// A step may have changed it: the same, but for what the step has written in 16 bits, too.
  void forget_unless_written();
  /// Whether the next gather asks the neighbours only.
  bool has_secondary() const { return gather_.has_secondary(); }
  /// Of what this rank keeps for its neighbours.
  std::int64_t secondary_bytes() const { return gather_.secondary_bytes(); }

  /// Lets these members lie whole in a row of their own, whatever is gathered or released, until let_go() was
  /// called as often; what is written there is not kept. Collective, blocking.
  void hold(std::span<const std::size_t> held);
  bool is_held(std::size_t i) const { return !held_.empty() && held_[i].count > 0; }
  /// The shard takes its part of what held member `i` is, on all ranks alike. forget_copies() is to
  /// follow.
  void keep_held(std::size_t i);
  /// The member is again what is gathered, or nothing. Not Collective.
  void let_go(std::size_t i);

  /// The members' whole values in the shard's dtype, flat, in the order of members: views of one row, which
  /// may be the shard itself. Collective, blocking.
  std::vector<at::Tensor> whole_values() const;

  /// Gives the members memory of their own, with copies of these values, and lets go of them.
  void restore(const std::vector<at::Tensor>& values);

  /// Whether all members are what they were when they were taken over, trained or frozen as then.
  bool is_intact() const;
  /// @throws ConfigError naming the member that was moved, converted or replaced, or (un)frozen
  void check_members() const;

 private:
  /// A member that lies in a row of its own.
  struct Held {
    int count = 0;  // how often it is held
    at::Tensor row = {};
  };

  at::Tensor memory_for_part(at::ScalarType dtype);
  void take_over(std::size_t i);
  bool wants_narrow_shard() const;
  bool lies_in_row(std::size_t i) const;
  void attach_members();
  at::Tensor whole_row(at::ScalarType dtype) const;
  at::Tensor part_of(const at::Tensor& row, std::size_t i) const;
  void overwrite_row() const;
  void leave_row();

  std::vector<ShardedTensor> members_;
  const ShardMesh& mesh_;
  ShardMemory& memory_;
  ShardLayout layout_;
  at::ScalarType dtype_;      // of the members
  at::ScalarType own_dtype_;  // of the members before
  bool casts_arguments_;
  bool reduces_quantized_;
  bool is_trained_;
  bool is_resident_;
  at::Tensor kept_row_;  // undefined where rows come and go
  at::Tensor shard_;
  std::vector<at::Tensor> pieces_;
  std::vector<std::string> messages_;  // for who asks for the address of a member that has no memory
  std::vector<std::unique_ptr<TensorMark>> marks_;

  RowGather gather_;
  std::optional<NarrowShard> narrow_;
  at::Tensor row_;          // while gathering or gathered
  at::Tensor seen_;         // this rank's part as operators have seen it, once a member was written to
  bool is_live_ = false;    // gathered
  std::vector<Held> held_;  // by member, once one has been held
};

}  // namespace lockstep::detail
