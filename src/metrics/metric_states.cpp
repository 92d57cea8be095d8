// The states of metrics: their reduction over ranks, and what a checkpoint holds of them (SavedMetric).
//
// Sums and means of all states are sent in one float64 tensor, minima and maxima in one each; rows, whose
// number differs between ranks, are gathered.
#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>

#include <lockstep/base/error.h>

#include "metrics/metric.h"

namespace lockstep::metrics::detail {

std::uint64_t next_revision() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

namespace {

using States = std::vector<MetricState*>;

constexpr std::int64_t kHalfBits = 32;
constexpr std::int64_t kLowHalf = (std::int64_t{1} << kHalfBits) - 1;

template <class Predicate>
States select(const States& states, Predicate is_wanted) {
  States selected;
  std::ranges::copy_if(states, std::back_inserter(selected), is_wanted);
  return selected;
}

auto has(StateReduction reduction) {
  return [reduction](const MetricState* state) { return state->reduction == reduction; };
}

// In float64. An integer is cut into halves of 32 bits, whose sums over ranks are exact.
at::Tensor encoded(const at::Tensor& value) {
  const auto flat = value.flatten();
  if (flat.scalar_type() == at::kDouble) return flat;
  return at::cat(
      {flat.bitwise_right_shift(kHalfBits).to(at::kDouble), flat.bitwise_and(kLowHalf).to(at::kDouble)});
}

at::Tensor decoded(const at::Tensor& sums, const at::Tensor& like) {
  if (like.scalar_type() == at::kDouble) return sums.clone().view(like.sizes());
  const auto count = like.numel();
  const auto high = sums.narrow(0, 0, count).to(at::kLong), low = sums.narrow(0, count, count).to(at::kLong);
  return (high.bitwise_left_shift(kHalfBits) + low).view(like.sizes());
}

// One collective for all of `states`.
void all_reduce_together(const States& states, ReduceOp op, const Communicator& comm) {
  if (states.empty()) return;
  std::vector<at::Tensor> values;
  std::vector<std::int64_t> sizes;
  for (const auto* state : states) {
    values.push_back(encoded(state->value));
    sizes.push_back(values.back().numel());
  }
  const auto buffer = at::cat(values);
  comm.all_reduce(buffer, op);
  const auto results = buffer.split_with_sizes(sizes);
  for (std::size_t i = 0; i < states.size(); ++i) states[i]->value = decoded(results[i], states[i]->value);
}

}  // namespace

void reduce_over_ranks(const States& states, const Communicator& comm) {
  if (comm.size() == 1) return;
  const at::NoGradGuard no_grad;
  // A rank without a batch has none on its device.
  for (auto* state : states) {
    if (state->value.defined()) state->value = state->value.to(at::kCPU);
    for (auto& part : state->parts) part = part.to(at::kCPU);
  }
  const auto means = select(states, has(StateReduction::kMean));
  auto sums = select(states, has(StateReduction::kSum));
  sums.insert(sums.end(), means.begin(), means.end());
  all_reduce_together(sums, ReduceOp::kSum, comm);
  for (auto* state : means) state->value = state->value / comm.size();
  all_reduce_together(select(states, has(StateReduction::kMin)), ReduceOp::kMin, comm);
  all_reduce_together(select(states, has(StateReduction::kMax)), ReduceOp::kMax, comm);
  gather_rows(select(states, has(StateReduction::kCat)), comm);
}

namespace {

using Shape = std::vector<std::int64_t>;

constexpr std::int64_t kMaxDims = 8;
constexpr std::int64_t kHeaderSize = 2 + kMaxDims;  // dtype, number of dimensions, sizes

struct Rows {
  at::ScalarType dtype = at::kFloat;
  Shape sizes = {0};

  std::int64_t bytes() const {
    return c10::multiply_integers(sizes) * static_cast<std::int64_t>(c10::elementSize(dtype));
  }
};

at::Tensor header_of(const at::Tensor& rows) {
  if (rows.dim() > kMaxDims) {
    throw DataError("metrics", {.what = "rows of a state",
                                .expected = "at most " + std::to_string(kMaxDims) + " dimensions",
                                .got = std::to_string(rows.dim())});
  }
  Shape header{static_cast<std::int64_t>(rows.scalar_type()), rows.dim()};
  header.insert(header.end(), rows.sizes().begin(), rows.sizes().end());
  header.resize(kHeaderSize);
  return at::tensor(header, at::kLong);
}

Rows rows_of(const at::Tensor& header) {
  const auto* field = header.const_data_ptr<std::int64_t>();
  return {static_cast<at::ScalarType>(field[0]), Shape(field + 2, field + 2 + field[1])};
}

at::Tensor bytes_of(const at::Tensor& rows) { return rows.contiguous().flatten().view(at::kByte); }

// Describes the rows that each rank has of each state: [rank][state].
std::vector<std::vector<Rows>> exchange_headers(const std::vector<at::Tensor>& own,
                                                const Communicator& comm) {
  std::vector<at::Tensor> headers;
  for (const auto& rows : own) headers.push_back(header_of(rows));
  const auto mine = at::stack(headers);
  const auto all = at::empty({comm.size(), mine.size(0), kHeaderSize}, at::kLong);
  comm.all_gather(all, mine);
  std::vector<std::vector<Rows>> table;
  for (std::int64_t rank = 0; rank < comm.size(); ++rank) {
    auto& row = table.emplace_back();
    for (std::int64_t i = 0; i < mine.size(0); ++i) row.push_back(rows_of(all[rank][i]));
  }
  return table;
}

std::int64_t total_bytes(const std::vector<Rows>& of_rank) {
  std::int64_t total = 0;
  for (const auto& rows : of_rank) total += rows.bytes();
  return total;
}

// Appends the rows of one rank to the states.
void append(const std::vector<MetricState*>& states, const std::vector<Rows>& described,
            const at::Tensor& bytes) {
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < states.size(); ++i) {
    const auto size = described[i].bytes();
    const auto aligned = bytes.narrow(0, offset, size).clone();
    offset += size;
    if (described[i].sizes[0] == 0) continue;
    const auto rows = aligned.view(described[i].dtype).view(described[i].sizes);
    check_fits("sync", *states[i], rows);
    states[i]->parts.push_back(rows);
  }
}

}  // namespace

void gather_rows(const std::vector<MetricState*>& states, const Communicator& comm) {
  if (states.empty()) return;
  std::vector<at::Tensor> own, own_bytes, all_bytes;
  for (const auto* state : states) {
    own.push_back(value_of(*state));
    own_bytes.push_back(bytes_of(own.back()));
  }
  const auto table = exchange_headers(own, comm);
  for (const auto& of_rank : table) all_bytes.push_back(at::empty({total_bytes(of_rank)}, at::kByte));
  comm.all_gather(all_bytes, at::cat(own_bytes));
  for (auto* state : states) state->parts.clear();
  for (std::size_t rank = 0; rank < table.size(); ++rank) append(states, table[rank], all_bytes[rank]);
}

namespace {

constexpr std::array<std::pair<std::string_view, StateReduction>, 5> kReductions{
    {{"sum", StateReduction::kSum},
     {"mean", StateReduction::kMean},
     {"min", StateReduction::kMin},
     {"max", StateReduction::kMax},
     {"cat", StateReduction::kCat}}};

std::string name_of(StateReduction reduction) {
  return std::string(std::ranges::find(kReductions, reduction, [](auto row) { return row.second; })->first);
}

StateReduction reduction_of(const StateTree& tree, const std::string& state) {
  const auto& name = tree.get<std::string>(state);
  const auto* row = std::ranges::find(kReductions, name, [](auto known) { return known.first; });
  if (row != kReductions.end()) return row->second;
  throw CheckpointError(
      "metrics",
      {.what = "state " + tree.path() + "/" + state, .expected = "sum, mean, min, max or cat", .got = name});
}

// `later` with the updates before it: where `later` has one update, the result has the same bits as an object
// that had all of them.
MetricState joined(const MetricState& earlier, const MetricState& later, std::int64_t earlier_updates,
                   std::int64_t later_updates) {
  auto all = earlier;
  if (earlier.reduction == StateReduction::kCat) {
    all.parts.insert(all.parts.end(), later.parts.begin(), later.parts.end());
    return all;
  }
  if (later_updates == 0) return all;
  if (earlier.reduction == StateReduction::kMean && later_updates > 1) {
    const auto sum = earlier.value * earlier_updates + later.value * later_updates;
    all.value = sum / (earlier_updates + later_updates);
    return all;
  }
  take_up(all, later.value, earlier_updates + 1);
  return all;
}

}  // namespace

StateTree SavedMetric::save(const Metric& metric) {
  StateTree reductions, tree;
  for (const auto& state : metric.states_->states) reductions.set(state.name, name_of(state.reduction));
  tree.set("class", metric.name());
  tree.set("reductions", std::move(reductions));
  tree.set("state", metric.state());
  return tree;
}

bool SavedMetric::is_loaded(const Metric& metric) { return metric.states_->is_loaded; }
std::uint64_t SavedMetric::revision(const Metric& metric) { return metric.states_->revision; }

SavedMetric::SavedMetric(const StateTree& saved) : Metric(saved.get<std::string>("class")) {
  const auto& state = saved.get<StateTree>("state");
  const auto& reductions = saved.get<StateTree>("reductions");
  for (const auto& entry : reductions.entries()) {
    const auto reduction = reduction_of(reductions, entry.name);
    if (reduction == StateReduction::kCat) {
      add_cat_state(entry.name);
    } else {
      add_state(entry.name, at::zeros_like(state.get<at::Tensor>(entry.name)), reduction);
    }
  }
  load_state(state);
}

void SavedMetric::hand_over(Metric& metric) const {
  auto& states = *metric.states_;
  if (states.is_loaded) return;
  const auto later = states;
  metric.load_state(state());
  for (std::size_t i = 0; i < later.states.size(); ++i)
    states.states[i] = joined(states.states[i], later.states[i], update_count(), later.update_count);
  states.update_count += later.update_count;
}

at::Tensor SavedMetric::compute() const {
  throw ConfigError("metrics", {.what = name() + " of a checkpoint cannot compute",
                                .expected = "the metric itself",
                                .got = "the state that was saved of it"});
}

}  // namespace lockstep::metrics::detail
