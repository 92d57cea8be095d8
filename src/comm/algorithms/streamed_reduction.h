// Sums in a fixed order over a transport of many transfers: a chunk's sum leaves as soon as it is folded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/comm/reduce_op.h>

#include "comm/algorithms/scratch.h"

namespace lockstep::detail {

class Transport;
class Transfers;

/// What sums of some ranks are summed to.
struct PartialSum {
  at::ScalarType dtype;
  ReduceOp op;
  int ranks;  ///< how many they are all together
};

/// Each member sums a slice of the tensor, chunk by chunk. It gets the others' rows of a chunk, folds them
/// with its own and sends the sum to who wants it, while the next chunks are under way. The bits are those of
/// reduce_rows(), however the tensor is cut.
class LOCKSTEP_API StreamedReduction {
 public:
  /// Among all ranks. Borrows the transport, which has transfers.
  explicit StreamedReduction(Transport& transport);
  /// Among `members`, ranks of the transport of which this is one.
  StreamedReduction(Transport& transport, std::vector<int> members);

  /// As those of OrderedReduction, of flat tensors that are not empty. `root` is among all ranks.
  void all_reduce(const at::Tensor& flat, ReduceOp op);
  void reduce(const at::Tensor& flat, int root, ReduceOp op);
  void reduce_scatter(const at::Tensor& output, const at::Tensor& flat, ReduceOp op);

  /// The same of `count` elements of reduce_some_rows(), one node of the tree on each member; or of `slice`
  /// elements for each of them.
  void all_reduce_partials(const std::byte* partials, std::byte* sums, std::size_t count,
                           const PartialSum& sum);
  void reduce_scatter_partials(const std::byte* partials, std::byte* output, std::size_t slice,
                               const PartialSum& sum);

 private:
  struct Plan;
  class Run;

  void run(const Plan& plan);
  std::pair<std::size_t, std::size_t> own_slice(std::size_t count) const;

  Transport& transport_;
  std::vector<int> members_;
  Scratch rows_;
  Scratch sums_;
};

}  // namespace lockstep::detail
