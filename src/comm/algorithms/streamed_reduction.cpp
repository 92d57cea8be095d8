#include "comm/algorithms/streamed_reduction.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "comm/algorithms/reduce_rows.h"
#include "comm/transport/transport.h"

namespace lockstep::detail {
namespace {

constexpr std::size_t kChunkBytes = 256 << 10;      // at most
constexpr std::size_t kLeastChunkBytes = 32 << 10;  // a frame's header and calls are small beside that
constexpr std::size_t kRowsBytes = 2 << 20;         // of all rows that are received at once
constexpr std::size_t kDepth = 3;                   // chunks whose rows may be under way

// Of a row of a chunk.
std::size_t chunk_bytes(int ranks) {
  const auto others = static_cast<std::size_t>(ranks - 1);
  return std::clamp(kRowsBytes / kDepth / others, kLeastChunkBytes, kChunkBytes);
}

std::byte* memory_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.mutable_data_ptr()); }
const std::byte* const_memory_of(const at::Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.const_data_ptr());
}

std::vector<int> all_of(const Transport& transport) {
  std::vector<int> members(static_cast<std::size_t>(transport.size()));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

}  // namespace

// Counts are in elements. Slices are by member, and make up the whole.
struct StreamedReduction::Plan {
  const std::byte* rows;      // of all slices
  std::byte* sums = nullptr;  // likewise, where this member gets them
  std::byte* output;          // the sums of its own slice
  std::size_t count;          // in all slices
  std::size_t slice;          // in one; the last ones may have less
  at::ScalarType dtype;       // of the sums
  ReduceOp op;
  std::optional<int> root = std::nullopt;   // who gets the sums, if not all
  bool is_scattered = false;                // each member gets those of its own slice alone
  std::optional<int> ranks = std::nullopt;  // whose sums the rows are, which are of partial_dtype()

  std::size_t row_element() const { return c10::elementSize(ranks ? partial_dtype(dtype) : dtype); }
  std::size_t sum_element() const { return c10::elementSize(dtype); }
};

// One call.
class StreamedReduction::Run {
 public:
  Run(Transport& transport, const std::vector<int>& members, const Plan& plan, Scratch& rows)
      : plan_(plan),
        members_(members),
        size_(static_cast<int>(members.size())),
        own_(static_cast<int>(std::ranges::find(members, transport.rank()) - members.begin())),
        chunk_(std::max<std::size_t>(1, chunk_bytes(size_) / plan.row_element())),
        own_chunks_(chunks_of(own_)),
        scratch_(
            memory_of(rows.get(static_cast<std::int64_t>(kDepth * others() * chunk_ * plan.row_element())))),
        arrived_(own_chunks_, 0),
        transfers_(transport.begin_transfers()) {}

  void run() {
    for (std::size_t chunk = 0; chunk < std::min(kDepth, own_chunks_); ++chunk) receive_rows(chunk);
    receive_sums();
    send_rows();
    for (std::size_t chunk = 0; chunk < own_chunks_; ++chunk) {
      await_rows(chunk);
      fold(chunk);
      send_sum(chunk);
      if (chunk + kDepth < own_chunks_) receive_rows(chunk + kDepth);
    }
    transfers_->finish();
  }

 private:
  using Stream = Transfers::Stream;
  struct Part {
    std::size_t begin, count;  // within the whole
  };

  std::size_t others() const { return static_cast<std::size_t>(size_ - 1); }
  int rank_of(int member) const { return members_[static_cast<std::size_t>(member)]; }
  Part slice_of(int member) const {
    const auto begin = std::min(plan_.count, plan_.slice * static_cast<std::size_t>(member));
    return {begin, std::min(plan_.slice, plan_.count - begin)};
  }
  std::size_t chunks_of(int member) const { return (slice_of(member).count + chunk_ - 1) / chunk_; }
  Part chunk_of(int member, std::size_t chunk) const {
    const auto [begin, count] = slice_of(member);
    return {begin + chunk * chunk_, std::min(chunk_, count - chunk * chunk_)};
  }
  const std::byte* rows_of(const Part& part) const { return plan_.rows + part.begin * plan_.row_element(); }
  std::byte* sums_of(const Part& part) const { return plan_.sums + part.begin * plan_.sum_element(); }
  std::byte* own_sum(std::size_t chunk) const { return plan_.output + chunk * chunk_ * plan_.sum_element(); }
  // Where the row of `member` is received.
  std::byte* row(std::size_t chunk, int member) const {
    const auto number = static_cast<std::size_t>(member > own_ ? member - 1 : member);
    return scratch_ + (chunk % kDepth * others() + number) * chunk_ * plan_.row_element();
  }
  bool gets_sums(int member) const { return !plan_.is_scattered && plan_.root.value_or(member) == member; }

  // The next one first: not all at the same one.
  template <class Body>
  void for_others(const Body& body) const {
    for (int offset = 1; offset < size_; ++offset) body((own_ + offset) % size_);
  }

  void receive_rows(std::size_t chunk) {
    const auto bytes = chunk_of(own_, chunk).count * plan_.row_element();
    for_others([&](int member) {
      transfers_->receive(rank_of(member), Stream::kRows, row(chunk, member), bytes, static_cast<int>(chunk));
    });
  }

  // Whoever sums a chunk has its row from here already.
  void receive_sums() {
    if (!gets_sums(own_)) return;
    for_others([&](int member) {
      for (std::size_t chunk = 0; chunk < chunks_of(member); ++chunk) {
        const auto part = chunk_of(member, chunk);
        transfers_->receive(rank_of(member), Stream::kSums, sums_of(part), part.count * plan_.sum_element());
      }
    });
  }

  void send_rows() {
    for (std::size_t chunk = 0; chunk < chunks_of(0); ++chunk) {
      for_others([&](int member) {
        if (chunk >= chunks_of(member)) return;
        const auto part = chunk_of(member, chunk);
        transfers_->send(rank_of(member), Stream::kRows, rows_of(part), part.count * plan_.row_element());
      });
    }
  }

  // Those of later chunks may come before.
  void await_rows(std::size_t chunk) {
    while (arrived_[chunk] < others()) ++arrived_[static_cast<std::size_t>(transfers_->await_numbered())];
  }

  void fold(std::size_t chunk) {
    const auto part = chunk_of(own_, chunk);
    std::vector<const void*> rows(static_cast<std::size_t>(size_));
    for_others([&](int member) { rows[static_cast<std::size_t>(member)] = row(chunk, member); });
    rows[static_cast<std::size_t>(own_)] = rows_of(part);
    if (plan_.ranks)
      reduce_partials(rows, plan_.dtype, plan_.op, static_cast<std::size_t>(*plan_.ranks), own_sum(chunk),
                      part.count);
    else
      reduce_rows(rows, plan_.dtype, plan_.op, own_sum(chunk), part.count);
  }

  void send_sum(std::size_t chunk) {
    const auto bytes = chunk_of(own_, chunk).count * plan_.sum_element();
    for_others([&](int member) {
      if (gets_sums(member)) transfers_->send(rank_of(member), Stream::kSums, own_sum(chunk), bytes);
    });
  }

  const Plan plan_;
  const std::vector<int>& members_;
  int size_;
  int own_;            // this rank's place among the members
  std::size_t chunk_;  // elements
  std::size_t own_chunks_;
  std::byte* scratch_;
  std::vector<std::size_t> arrived_;  // rows, by chunk
  std::unique_ptr<Transfers> transfers_;
};

StreamedReduction::StreamedReduction(Transport& transport)
    : StreamedReduction(transport, all_of(transport)) {}

StreamedReduction::StreamedReduction(Transport& transport, std::vector<int> members)
    : transport_(transport), members_(std::move(members)) {}

void StreamedReduction::run(const Plan& plan) { Run(transport_, members_, plan, rows_).run(); }

// Where this rank's slice begins, and how long slices are.
std::pair<std::size_t, std::size_t> StreamedReduction::own_slice(std::size_t count) const {
  const auto slice = (count + members_.size() - 1) / members_.size();
  const auto own = std::ranges::find(members_, transport_.rank()) - members_.begin();
  return {std::min(slice * static_cast<std::size_t>(own), count), slice};
}

void StreamedReduction::all_reduce(const at::Tensor& flat, ReduceOp op) {
  auto* const data = memory_of(flat);
  const auto count = static_cast<std::size_t>(flat.numel());
  const auto [begin, slice] = own_slice(count);
  run({.rows = data,
       .sums = data,
       .output = data + begin * static_cast<std::size_t>(flat.element_size()),
       .count = count,
       .slice = slice,
       .dtype = flat.scalar_type(),
       .op = op});
}

// The sums of others than the root lie beside their tensors, which stay.
void StreamedReduction::reduce(const at::Tensor& flat, int root, ReduceOp op) {
  const bool is_root = transport_.rank() == root;
  const auto count = static_cast<std::size_t>(flat.numel()),
             element = static_cast<std::size_t>(flat.element_size());
  const auto [begin, slice] = own_slice(count);
  run({.rows = const_memory_of(flat),
       .sums = is_root ? memory_of(flat) : nullptr,
       .output = is_root ? memory_of(flat) + begin * element
                         : memory_of(sums_.get(static_cast<std::int64_t>(slice * element))),
       .count = count,
       .slice = slice,
       .dtype = flat.scalar_type(),
       .op = op,
       .root = root});
}

void StreamedReduction::reduce_scatter(const at::Tensor& output, const at::Tensor& flat, ReduceOp op) {
  run({.rows = const_memory_of(flat),
       .output = memory_of(output),
       .count = static_cast<std::size_t>(flat.numel()),
       .slice = static_cast<std::size_t>(output.numel()),
       .dtype = flat.scalar_type(),
       .op = op,
       .is_scattered = true});
}

void StreamedReduction::all_reduce_partials(const std::byte* partials, std::byte* sums, std::size_t count,
                                            const PartialSum& sum) {
  if (count == 0) return;
  const auto [begin, slice] = own_slice(count);
  run({.rows = partials,
       .sums = sums,
       .output = sums + begin * c10::elementSize(sum.dtype),
       .count = count,
       .slice = slice,
       .dtype = sum.dtype,
       .op = sum.op,
       .ranks = sum.ranks});
}

void StreamedReduction::reduce_scatter_partials(const std::byte* partials, std::byte* output,
                                                std::size_t slice, const PartialSum& sum) {
  run({.rows = partials,
       .output = output,
       .count = slice * members_.size(),
       .slice = slice,
       .dtype = sum.dtype,
       .op = sum.op,
       .is_scattered = true,
       .ranks = sum.ranks});
}

}  // namespace lockstep::detail
