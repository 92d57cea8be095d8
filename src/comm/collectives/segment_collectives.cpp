#include "comm/collectives/segment_collectives.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "comm/algorithms/reduce_rows.h"
#include "comm/collectives/slot_pipelines.h"

namespace lockstep::detail {
namespace {

using pipelines::Part;
using pipelines::Parts;

// Of a reduction: of more it pays that each member sums a slice.
constexpr std::size_t kMostForRootAlone = 32 << 10;

// What is summed at once, and copied to all slots while it is in the first-level cache.
constexpr std::size_t kBlockBytes = 4 << 10;

std::byte* bytes_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.mutable_data_ptr()); }
const std::byte* const_bytes_of(const at::Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.const_data_ptr());
}

std::int64_t signed_of(std::size_t bytes) { return static_cast<std::int64_t>(bytes); }

// Sums rows in the order of the ranks.
class RowSum {
 public:
  RowSum(at::ScalarType dtype, ReduceOp op) : dtype_(dtype), op_(op), element_(c10::elementSize(dtype)) {}

  /// `output` may be one of the rows; with `is_for_all` the others become the sum, too.
  void operator()(const std::vector<std::byte*>& rows, std::size_t bytes, std::byte* output,
                  bool is_for_all) const {
    for (std::size_t done = 0; done < bytes; done += kBlockBytes) {
      const auto size = std::min(kBlockBytes, bytes - done);
      block_.clear();
      for (auto* row : rows) block_.push_back(row + done);
      reduce_rows(block_, dtype_, op_, output + done, size / element_);
      if (!is_for_all) continue;
      for (auto* row : rows)
        if (row != output) std::memcpy(row + done, output + done, size);
    }
  }

 private:
  at::ScalarType dtype_;
  ReduceOp op_;
  std::size_t element_;
  mutable std::vector<const void*> block_;
};

}  // namespace

std::int64_t SegmentCollectives::perform(const Collective& collective, AwaitLate await_late) {
  return (this->*row_of(collective.kind).run_in_segments)(collective, await_late);
}

std::int64_t SegmentCollectives::all_reduce(const Collective& collective, AwaitLate await_late) {
  return sum(collective, std::nullopt, await_late);
}

std::int64_t SegmentCollectives::reduce(const Collective& collective, AwaitLate await_late) {
  return sum(collective, collective.root, await_late);
}

std::int64_t SegmentCollectives::sum(const Collective& collective, std::optional<int> root,
                                     AwaitLate await_late) {
  const bool gets_sums = !root || *root == segments_->rank();
  pipelines::Pieces pieces;
  const auto add = [&](const at::Tensor& tensor) {
    pieces.add(gets_sums ? bytes_of(tensor) : const_cast<std::byte*>(const_bytes_of(tensor)),
               tensor.nbytes());
  };
  if (collective.output.defined()) add(collective.output);
  std::ranges::for_each(collective.outputs, add);
  const pipelines::Summand summand{
      .pieces = pieces, .root = root, .root_sums_alone = pieces.bytes() <= kMostForRootAlone};
  const RowSum row_sum(operand_of(collective).scalar_type(), collective.op);
  return signed_of(pipelines::sum(*segments_, summand, row_sum, await_late));
}

std::int64_t SegmentCollectives::reduce_scatter(const Collective& collective, AwaitLate await_late) {
  const auto& output = collective.output;
  const auto& input = collective.input;
  // Of the input nothing is written: a row may only be read where the sum is not for all.
  auto* const from = const_cast<std::byte*>(const_bytes_of(input));
  const RowSum row_sum(output.scalar_type(), collective.op);
  pipelines::sum_parts(*segments_, bytes_of(output), from, output.nbytes(), row_sum, await_late);
  return signed_of(input.nbytes() - output.nbytes());
}

std::int64_t SegmentCollectives::all_gather(const Collective& collective, AwaitLate await_late) {
  const auto bytes = collective.input.nbytes();
  const auto* const from = const_bytes_of(collective.input);
  auto* const to = bytes_of(collective.output);
  pipelines::gather(*segments_, to, from, bytes, await_late);
  auto* const own = to + static_cast<std::size_t>(segments_->rank()) * bytes;
  if (bytes > 0 && own != from) std::memcpy(own, from, bytes);
  return signed_of(bytes * static_cast<std::size_t>(segments_->size() - 1));
}

std::int64_t SegmentCollectives::broadcast(const Collective& collective, AwaitLate await_late) {
  const auto& tensor = collective.output;
  pipelines::broadcast(*segments_, bytes_of(tensor), tensor.nbytes(), collective.root, await_late);
  const bool is_root = segments_->rank() == collective.root;
  return is_root ? signed_of(tensor.nbytes() * static_cast<std::size_t>(segments_->size() - 1)) : 0;
}

namespace {

Parts no_parts(const GroupSegments& segments) { return Parts(static_cast<std::size_t>(segments.size())); }

Part part_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0) return {};
  return {.data = const_cast<std::byte*>(const_bytes_of(tensor)), .bytes = tensor.nbytes()};
}

Parts parts_of(const std::vector<at::Tensor>& tensors) {
  Parts parts;
  for (const auto& tensor : tensors) parts.push_back(part_of(tensor));
  return parts;
}

Parts parts_of(const at::Tensor& tensor, const std::vector<std::int64_t>& bytes) {
  Parts parts;
  auto* next = part_of(tensor).data;
  for (const auto count : bytes) {
    parts.push_back({.data = next, .bytes = static_cast<std::size_t>(count)});
    next += count;
  }
  return parts;
}

std::int64_t exchange(GroupSegments& all, const Parts& to, const Parts& from,
                      GroupSegments::AwaitLate await_late) {
  return signed_of(pipelines::exchange(all, to, from, await_late));
}

}  // namespace

std::int64_t SegmentCollectives::all_gather_list(const Collective& collective, AwaitLate await_late) {
  return exchange(*segments_, Parts(collective.outputs.size(), part_of(collective.input)),
                  parts_of(collective.outputs), await_late);
}

std::int64_t SegmentCollectives::gather(const Collective& collective, AwaitLate await_late) {
  auto to = no_parts(*segments_);
  to[static_cast<std::size_t>(collective.root)] = part_of(collective.input);
  const bool is_root = segments_->rank() == collective.root;
  return exchange(*segments_, to, is_root ? parts_of(collective.outputs) : no_parts(*segments_), await_late);
}

std::int64_t SegmentCollectives::scatter(const Collective& collective, AwaitLate await_late) {
  auto from = no_parts(*segments_);
  from[static_cast<std::size_t>(collective.root)] = part_of(collective.output);
  const bool is_root = segments_->rank() == collective.root;
  return exchange(*segments_, is_root ? parts_of(collective.inputs) : no_parts(*segments_), from, await_late);
}

std::int64_t SegmentCollectives::all_to_all(const Collective& collective, AwaitLate await_late) {
  const int size = segments_->size();
  return exchange(
      *segments_, parts_of(collective.input, bytes_by_rank(collective.input, collective.input_splits, size)),
      parts_of(collective.output, bytes_by_rank(collective.output, collective.output_splits, size)),
      await_late);
}

std::int64_t SegmentCollectives::all_to_all_list(const Collective& collective, AwaitLate await_late) {
  return exchange(*segments_, parts_of(collective.inputs), parts_of(collective.outputs), await_late);
}

}  // namespace lockstep::detail
