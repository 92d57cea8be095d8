// Reductions whose bits depend on the ranks' values alone: how values are combined (reduce_rows.cpp), and
// all-reduce, reduce and reduce-scatter made of that.
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

/// The one place where values of different ranks are combined.
///
/// Combines the first `count` elements of all rows, which are the ranks' values in the order of the ranks,
/// into `output`, which may be one of the rows.
///
/// Ranks are combined along a tree: neighbours in pairs, then pairs of pairs; an odd one is carried up.
/// Values are widened first (half and bfloat16 to float, integers to 64 bits) and rounded once, after
/// the division of an average. So the bits of an element depend on the ranks' values for it and on
/// nothing else: neither on its position, nor on how tensors were cut, nor on threads.
LOCKSTEP_API void reduce_rows(std::span<const void* const> rows, at::ScalarType dtype, ReduceOp op,
                              void* output, std::size_t count);

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
