// Sums in a fixed order over a transport of many transfers: a chunk's sum leaves as soon as it is folded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/comm/reduce_op.h>

#include "comm/algorithms/scratch.h"

namespace lockstep::detail {

class Transport;
class Transfers;

/// Each rank sums a slice of the tensor, chunk by chunk. It gets the others' rows of a chunk, folds them with
/// its own and sends the sum to who wants it, while the next chunks are under way. The bits are those of
/// reduce_rows(), however the tensor is cut.
class LOCKSTEP_API StreamedReduction {
 public:
  /// Borrows the transport, which has begin_transfers().
  explicit StreamedReduction(Transport& transport) : transport_(transport) {}

  /// As those of OrderedReduction, of flat tensors that are not empty.
  void all_reduce(const at::Tensor& flat, ReduceOp op);
  void reduce(const at::Tensor& flat, int root, ReduceOp op);
  void reduce_scatter(const at::Tensor& output, const at::Tensor& flat, ReduceOp op);

 private:
  struct Plan;
  class Run;

  Transport& transport_;
  Scratch rows_;
  Scratch sums_;
};

}  // namespace lockstep::detail
