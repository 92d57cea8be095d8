// The states of all ranks become one. Sums and means of all states travel in one float64 tensor, and so do
// minima and maxima in theirs; rows, of which each rank has another number, are gathered.
#include <algorithm>
#include <iterator>

#include <ATen/ATen.h>

#include "metrics/metric_states.h"

namespace lockstep::metrics::detail {
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
  const auto means = select(states, has(StateReduction::kMean));
  auto sums = select(states, has(StateReduction::kSum));
  sums.insert(sums.end(), means.begin(), means.end());
  all_reduce_together(sums, ReduceOp::kSum, comm);
  for (auto* state : means) state->value = state->value / comm.size();
  all_reduce_together(select(states, has(StateReduction::kMin)), ReduceOp::kMin, comm);
  all_reduce_together(select(states, has(StateReduction::kMax)), ReduceOp::kMax, comm);
  gather_rows(select(states, has(StateReduction::kCat)), comm);
}

}  // namespace lockstep::metrics::detail
