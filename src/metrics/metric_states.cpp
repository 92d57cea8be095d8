#include "metrics/metric_states.h"

#include <ATen/ATen.h>

#include <lockstep/base/error.h>

namespace lockstep::metrics::detail {
namespace {

std::string shape_of(const at::Tensor& tensor) { return c10::str(tensor.scalar_type(), " ", tensor.sizes()); }

[[noreturn]] void refuse(const std::string& owner, const MetricState& state, std::string expected,
                         const at::Tensor& got) {
  throw DataError("metrics", {.what = owner + ": a batch does not fit the state " + state.name,
                              .expected = std::move(expected),
                              .got = got.defined() ? shape_of(got) : "an undefined tensor"});
}

bool is_row_like(const at::Tensor& rows, const at::Tensor& batch) {
  return rows.scalar_type() == batch.scalar_type() && rows.sizes().slice(1) == batch.sizes().slice(1);
}

void check_rows(const std::string& owner, const MetricState& state, const at::Tensor& batch) {
  if (batch.dim() == 0) refuse(owner, state, "rows: at least one dimension", batch);
  if (batch.size(0) == 0 || state.parts.empty()) return;
  const auto& rows = state.parts.front();
  if (!is_row_like(rows, batch)) refuse(owner, state, "rows as in " + shape_of(rows), batch);
}

at::Tensor reduced(StateReduction reduction, const at::Tensor& a, const at::Tensor& b, std::int64_t updates) {
  switch (reduction) {
    case StateReduction::kMean:
      return (a * (updates - 1) + b) / updates;
    case StateReduction::kMin:
      return at::minimum(a, b);
    case StateReduction::kMax:
      return at::maximum(a, b);
    default:
      return a + b;
  }
}

}  // namespace

void check_fits(const std::string& owner, const MetricState& state, const at::Tensor& batch) {
  if (!batch.defined()) refuse(owner, state, "a tensor", batch);
  if (state.reduction == StateReduction::kCat) return check_rows(owner, state, batch);
  const bool would_round = !state.value.is_floating_point() && batch.is_floating_point();
  if (batch.sizes() != state.value.sizes() || batch.is_complex() || would_round)
    refuse(owner, state, shape_of(state.value), batch);
}

void take_up(MetricState& state, const at::Tensor& batch, std::int64_t update_count) {
  const at::NoGradGuard no_grad;
  if (state.reduction == StateReduction::kCat) {
    const bool copy = true;  // the caller may write into its memory again
    if (batch.size(0) > 0)
      state.parts.push_back(batch.detach().to(at::kCPU, batch.scalar_type(), false, copy));
    return;
  }
  const auto given = batch.detach().to(at::kCPU, state.value.scalar_type());
  state.value = reduced(state.reduction, state.value, given, update_count);
}

std::vector<MetricState> initial_states(const std::vector<MetricState>& states) {
  std::vector<MetricState> initial;
  for (const auto& state : states)
    initial.push_back({state.name, state.reduction, state.initial, state.initial, {}});
  return initial;
}

at::Tensor value_of(const MetricState& state) {
  if (state.reduction != StateReduction::kCat) return state.value;
  return state.parts.empty() ? at::empty({0}) : at::cat(state.parts);
}

}  // namespace lockstep::metrics::detail
