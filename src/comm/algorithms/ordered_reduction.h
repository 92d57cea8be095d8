// Reductions whose bits depend on the ranks' values alone: all-reduce, reduce and reduce-scatter made of
// reduce_rows().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/comm/reduce_op.h>

#include "comm/algorithms/scratch.h"
#include "comm/algorithms/streamed_reduction.h"

namespace lockstep::detail {

class Transport;

/// Reductions over a transport: in streams where it has transfers, else of exchanges. Vocabulary: a *piece*
/// is as much of a tensor as is reduced at once; a *chunk* is the part of a piece that one rank reduces; a
/// *row* is one rank's contribution to a chunk.
class LOCKSTEP_API OrderedReduction {
 public:
  explicit OrderedReduction(Transport& transport) : transport_(transport), streamed_(transport) {}

  /// Reduces `tensor` (contiguous) in place.
  void all_reduce(const at::Tensor& tensor, ReduceOp op);

  /// Reduces `tensor` (contiguous) in place on rank `root`, to the bits of all_reduce(); the others' stay.
  void reduce(const at::Tensor& tensor, int root, ReduceOp op);

  /// Writes this rank's part of the reduced `input` to `output`. Both contiguous.
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op);

 private:
  using Parts = std::vector<at::Tensor>;  // by rank; undefined where there is none

  bool fits_one_round(const at::Tensor& flat) const;
  std::int64_t elements_of_piece(const at::Tensor& flat) const;
  void all_reduce_small(const at::Tensor& flat, ReduceOp op);
  void all_reduce_piece(const at::Tensor& piece, ReduceOp op);
  void reduce_small(const at::Tensor& flat, int root, ReduceOp op);
  void reduce_piece(const at::Tensor& piece, int root, ReduceOp op);
  Parts chunks_of(const at::Tensor& flat) const;
  Parts to_others(const at::Tensor& tensor) const;
  at::Tensor row(const at::Tensor& like, int rank);
  void reduce_from_all(const Parts& to, const at::Tensor& own, ReduceOp op, const at::Tensor& output);

  Transport& transport_;
  StreamedReduction streamed_;  // where the transport has transfers
  Scratch rows_;
};

}  // namespace lockstep::detail
