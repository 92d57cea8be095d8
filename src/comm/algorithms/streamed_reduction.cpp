#include "comm/algorithms/streamed_reduction.h"

#include <algorithm>
#include <memory>

#include "comm/algorithms/ordered_reduction.h"
#include "comm/transport/transport.h"

namespace lockstep::detail {
namespace {

constexpr std::size_t kChunkBytes = 128 << 10;  // at most: the rows under way stay in the second-level cache
constexpr std::size_t kLeastChunkBytes = 32 << 10;  // a frame's header and calls are small beside that
constexpr std::size_t kRowsBytes = 2 << 20;         // of all rows that are received at once
constexpr std::size_t kDepth = 4;                   // chunks whose rows may be under way

// What is summed at once: it stays in the first-level cache with its rows.
std::size_t chunk_bytes(int ranks) {
  const auto others = static_cast<std::size_t>(ranks - 1);
  return std::clamp(kRowsBytes / kDepth / others, kLeastChunkBytes, kChunkBytes);
}

std::byte* memory_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.mutable_data_ptr()); }

}  // namespace

// In elements. Slices are by rank, and make up the whole.
struct StreamedReduction::Plan {
  std::byte* data;    // of all slices
  std::byte* output;  // where the sums of the own slice go
  std::size_t count;  // elements in all slices
  std::size_t slice;  // in a slice, the last ones may have less
  at::ScalarType dtype;
  ReduceOp op;
  bool sums_to_all = false;
  std::optional<int> root = std::nullopt;  // who gets the sums, if not all
};

// One call.
class StreamedReduction::Run {
 public:
  Run(Transport& transport, const Plan& plan, Scratch& rows)
      : plan_(plan),
        rank_(transport.rank()),
        size_(transport.size()),
        element_(c10::elementSize(plan.dtype)),
        chunk_(std::max<std::size_t>(1, chunk_bytes(size_) / element_)),
        own_chunks_(chunks_of(rank_)),
        scratch_(memory_of(rows.get(static_cast<std::int64_t>(kDepth * others() * chunk_ * element_)))),
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
  struct Part {
    std::size_t begin, count;  // elements, within the whole
  };

  std::size_t others() const { return static_cast<std::size_t>(size_ - 1); }
  Part slice_of(int member) const {
    const auto begin = std::min(plan_.count, plan_.slice * static_cast<std::size_t>(member));
    return {begin, std::min(plan_.slice, plan_.count - begin)};
  }
  std::size_t chunks_of(int member) const { return (slice_of(member).count + chunk_ - 1) / chunk_; }
  Part chunk_of(int member, std::size_t chunk) const {
    const auto [begin, count] = slice_of(member);
    return {begin + chunk * chunk_, std::min(chunk_, count - chunk * chunk_)};
  }
  std::byte* data_of(const Part& part) const { return plan_.data + part.begin * element_; }
  // In the order in which rows of a chunk are received.
  std::byte* row(std::size_t chunk, int member) const {
    const auto number = static_cast<std::size_t>(member > rank_ ? member - 1 : member);
    return scratch_ + (chunk % kDepth * others() + number) * chunk_ * element_;
  }
  bool gets_sums() const { return plan_.sums_to_all || plan_.root == rank_; }

  template <class Body>
  void for_others(const Body& body) const {
    for (int offset = 1; offset < size_; ++offset) body((rank_ + offset) % size_);
  }

  void receive_rows(std::size_t chunk) {
    const auto bytes = chunk_of(rank_, chunk).count * element_;
    for_others([&](int member) {
      transfers_->receive(member, Transfers::Stream::kRows, row(chunk, member), bytes,
                          static_cast<int>(chunk));
    });
  }

  // Whoever sums a chunk has its row from here already.
  void receive_sums() {
    if (!gets_sums()) return;
    for_others([&](int member) {
      for (std::size_t chunk = 0; chunk < chunks_of(member); ++chunk) {
        const auto part = chunk_of(member, chunk);
        transfers_->receive(member, Transfers::Stream::kSums, data_of(part), part.count * element_);
      }
    });
  }

  void send_rows() {
    const auto most = chunks_of(0);
    for (std::size_t chunk = 0; chunk < most; ++chunk) {
      for_others([&](int member) {
        if (chunk >= chunks_of(member)) return;
        const auto part = chunk_of(member, chunk);
        transfers_->send(member, Transfers::Stream::kRows, data_of(part), part.count * element_);
      });
    }
  }

  // Those of later chunks may come before.
  void await_rows(std::size_t chunk) {
    while (arrived_[chunk] < others()) ++arrived_[static_cast<std::size_t>(transfers_->await_numbered())];
  }

  void fold(std::size_t chunk) {
    const auto part = chunk_of(rank_, chunk);
    std::vector<const void*> rows(static_cast<std::size_t>(size_));
    for_others([&](int member) { rows[static_cast<std::size_t>(member)] = row(chunk, member); });
    rows[static_cast<std::size_t>(rank_)] = data_of(part);
    reduce_rows(rows, plan_.dtype, plan_.op, sum_of(chunk), part.count);
  }

  std::byte* sum_of(std::size_t chunk) const { return plan_.output + chunk * chunk_ * element_; }

  void send_sum(std::size_t chunk) {
    const auto bytes = chunk_of(rank_, chunk).count * element_;
    for_others([&](int member) {
      if (plan_.sums_to_all || plan_.root == member)
        transfers_->send(member, Transfers::Stream::kSums, sum_of(chunk), bytes);
    });
  }

  const Plan plan_;
  int rank_;
  int size_;
  std::size_t element_;
  std::size_t chunk_;  // elements
  std::size_t own_chunks_;
  std::byte* scratch_;
  std::vector<std::size_t> arrived_;  // rows, by chunk
  std::unique_ptr<Transfers> transfers_;
};

namespace {

std::size_t slice_for(const at::Tensor& flat, int ranks) {
  return static_cast<std::size_t>((flat.numel() + ranks - 1) / ranks);
}

}  // namespace

void StreamedReduction::all_reduce(const at::Tensor& flat, ReduceOp op) {
  auto* const data = memory_of(flat);
  const auto slice = slice_for(flat, transport_.size());
  const auto own = std::min<std::size_t>(slice * static_cast<std::size_t>(transport_.rank()),
                                         static_cast<std::size_t>(flat.numel()));
  Run(transport_,
      {.data = data,
       .output = data + own * static_cast<std::size_t>(flat.element_size()),
       .count = static_cast<std::size_t>(flat.numel()),
       .slice = slice,
       .dtype = flat.scalar_type(),
       .op = op,
       .sums_to_all = true},
      rows_)
      .run();
}

// The sums of others than the root lie beside their tensors, which stay.
void StreamedReduction::reduce(const at::Tensor& flat, int root, ReduceOp op) {
  const bool is_root = transport_.rank() == root;
  auto* const data =
      is_root ? memory_of(flat) : static_cast<std::byte*>(const_cast<void*>(flat.const_data_ptr()));
  const auto slice = slice_for(flat, transport_.size());
  const auto bytes = slice * static_cast<std::size_t>(flat.element_size());
  const auto own = std::min<std::size_t>(bytes * static_cast<std::size_t>(root), flat.nbytes());
  Run(transport_,
      {.data = data,
       .output = is_root ? data + own : memory_of(sums_.get(static_cast<std::int64_t>(bytes))),
       .count = static_cast<std::size_t>(flat.numel()),
       .slice = slice,
       .dtype = flat.scalar_type(),
       .op = op,
       .root = root},
      rows_)
      .run();
}

void StreamedReduction::reduce_scatter(const at::Tensor& output, const at::Tensor& flat, ReduceOp op) {
  Run(transport_,
      {.data = static_cast<std::byte*>(const_cast<void*>(flat.const_data_ptr())),
       .output = memory_of(output),
       .count = static_cast<std::size_t>(flat.numel()),
       .slice = static_cast<std::size_t>(output.numel()),
       .dtype = flat.scalar_type(),
       .op = op},
      rows_)
      .run();
}

}  // namespace lockstep::detail
