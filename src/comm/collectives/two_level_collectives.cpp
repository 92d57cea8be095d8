#include "comm/collectives/two_level_collectives.h"

#include <algorithm>
#include <cstring>

#include "comm/algorithms/reduce_rows.h"
#include "comm/collectives/slot_pipelines.h"
#include "comm/transport/transport.h"

namespace lockstep::detail {
namespace {

using pipelines::Pieces;

constexpr std::size_t kPartBytes =
    4 << 20;  // of a rank, that are summed at once: bounds memory for sums in between

std::byte* data_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.mutable_data_ptr()); }
// Ranges are of memory that may be written, of which an input is none: it is only read.
std::byte* read_only_data_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(const_cast<void*>(tensor.const_data_ptr()));
}

std::size_t of_others(const std::vector<Pieces>& ranges, int own) {
  std::size_t bytes = 0;
  for (const auto& each : ranges) bytes += each.bytes();
  return bytes - ranges[static_cast<std::size_t>(own)].bytes();
}

// Sums rows into memory for sums of some ranks.
class NodeSum {
 public:
  NodeSum(at::ScalarType dtype, ReduceOp op, std::byte* partials)
      : dtype_(dtype),
        op_(op),
        row_element_(c10::elementSize(dtype)),
        partial_element_(c10::elementSize(partial_dtype(dtype))),
        partials_(partials) {}

  void operator()(const std::vector<std::byte*>& rows, std::size_t begin, std::size_t bytes) const {
    const std::vector<const void*> read(rows.begin(), rows.end());
    reduce_some_rows(read, dtype_, op_, partials_ + begin / row_element_ * partial_element_,
                     bytes / row_element_);
  }

 private:
  at::ScalarType dtype_;
  ReduceOp op_;
  std::size_t row_element_, partial_element_;
  std::byte* partials_;
};

}  // namespace

void TwoLevelCollectives::open(Transport& transport, GroupSegments& host) {
  transport_ = &transport;
  host_ = &host;
  hosts_ = transport.size() / host.size();
  for (int each = 0; each < hosts_; ++each) column_.push_back(each * host.size() + host.rank());
  between_ = std::make_unique<StreamedReduction>(transport, column_);
}

bool TwoLevelCollectives::take(const Collective& collective) const {
  return host_ != nullptr &&
         (collective.kind == CollectiveKind::kAllReduce ||
          collective.kind == CollectiveKind::kReduceScatter || collective.kind == CollectiveKind::kAllGather);
}

std::int64_t TwoLevelCollectives::perform(const Collective& collective, AwaitLate await_late) {
  if (collective.kind == CollectiveKind::kAllReduce) return all_reduce(collective, await_late);
  if (collective.kind == CollectiveKind::kReduceScatter) return reduce_scatter(collective, await_late);
  return all_gather(collective, await_late);
}

std::int64_t TwoLevelCollectives::all_reduce(const Collective& collective, AwaitLate await_late) {
  const auto& tensor = collective.output;
  const auto dtype = tensor.scalar_type();
  const auto element = c10::elementSize(dtype), members = static_cast<std::size_t>(host_->size());
  const auto own = static_cast<std::size_t>(host_->rank());
  const auto all = static_cast<std::size_t>(tensor.numel()), most = kPartBytes / element * members;
  const bool is_in_place = partial_dtype(dtype) == dtype;
  std::size_t handed_over = 0;
  for (std::size_t begin = 0; begin < all; begin += most) {
    auto* const data = data_of(tensor) + begin * element;
    const auto count = std::min(most, all - begin), part = (count + members - 1) / members;
    const auto begin_of = [&](std::size_t member) { return std::min(count, member * part); };
    std::vector<Pieces> parts(members);
    for (std::size_t member = 0; member < members; ++member)
      parts[member].add(data + begin_of(member) * element,
                        (begin_of(member + 1) - begin_of(member)) * element);
    auto* const sums = data + begin_of(own) * element;
    auto* const partials =
        is_in_place ? sums : data_of(partials_.get(static_cast<std::int64_t>(part * sizeof(float))));
    pipelines::sum_ranges(*host_, parts, NodeSum(dtype, collective.op, partials), await_late);
    between_->all_reduce_partials(partials, sums, begin_of(own + 1) - begin_of(own),
                                  {.dtype = dtype, .op = collective.op, .ranks = transport_->size()});
    pipelines::gather_ranges(*host_, parts, await_late);
    handed_over += of_others(parts, host_->rank()) + parts[own].bytes() * (members - 1);
  }
  return static_cast<std::int64_t>(handed_over);
}

std::int64_t TwoLevelCollectives::reduce_scatter(const Collective& collective, AwaitLate await_late) {
  const auto& output = collective.output;
  const auto dtype = output.scalar_type();
  const auto element = c10::elementSize(dtype), members = static_cast<std::size_t>(host_->size());
  const auto hosts = static_cast<std::size_t>(hosts_);
  const auto slice = static_cast<std::size_t>(output.numel());
  const auto most = std::max<std::size_t>(1, kPartBytes / element / hosts);
  auto* const input = read_only_data_of(collective.input);
  std::size_t handed_over = 0;
  for (std::size_t begin = 0; begin < slice; begin += most) {
    const auto count = std::min(most, slice - begin);
    std::vector<Pieces> columns(members);
    for (std::size_t rank = 0; rank < hosts * members; ++rank)
      columns[rank % members].add(input + (rank * slice + begin) * element, count * element);
    const auto bytes = hosts * count * c10::elementSize(partial_dtype(dtype));
    auto* const partials = data_of(partials_.get(static_cast<std::int64_t>(bytes)));
    pipelines::sum_ranges(*host_, columns, NodeSum(dtype, collective.op, partials), await_late);
    between_->reduce_scatter_partials(partials, data_of(output) + begin * element, count,
                                      {.dtype = dtype, .op = collective.op, .ranks = transport_->size()});
    handed_over += of_others(columns, host_->rank());
  }
  return static_cast<std::int64_t>(handed_over);
}

std::int64_t TwoLevelCollectives::all_gather(const Collective& collective, AwaitLate await_late) {
  const auto bytes = collective.input.nbytes();
  const auto members = static_cast<std::size_t>(host_->size());
  const auto own = static_cast<std::size_t>(transport_->rank());
  const auto* const input = read_only_data_of(collective.input);
  auto* const output = data_of(collective.output);
  if (output + own * bytes != input) std::memcpy(output + own * bytes, input, bytes);
  {
    const auto transfers = transport_->begin_transfers();
    for (const int rank : column_) {
      if (rank == transport_->rank()) continue;
      auto* const place = output + static_cast<std::size_t>(rank) * bytes;
      transfers->receive(rank, Transfers::Stream::kParts, place, bytes);
      transfers->send(rank, Transfers::Stream::kParts, input, bytes);
    }
    transfers->finish();
  }
  std::vector<Pieces> columns(members);
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(transport_->size()); ++rank)
    columns[rank % members].add(output + rank * bytes, bytes);
  pipelines::gather_ranges(*host_, columns, await_late);
  return static_cast<std::int64_t>(columns[own % members].bytes() * (members - 1));
}

}  // namespace lockstep::detail
