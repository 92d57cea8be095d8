#include "metrics/metric.h"
#include <lockstep/metrics/metric.h>

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <lockstep/base/error.h>
#include <lockstep/device/torch_device.h>
#include <lockstep/metrics/monitor_mode.h>

#include "device/step_recording.h"

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
      state.parts.push_back(batch.detach().to(batch.device(), batch.scalar_type(), false, copy));
    return;
  }
  const auto given = batch.detach().to(state.value.scalar_type());
  if (state.value.device() != given.device()) state.value = to_device(state.value, given.device());
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

namespace lockstep::metrics {
namespace {

using detail::MetricState;
using detail::MetricStates;

[[noreturn]] void refuse(std::string what, std::string expected, std::string got, std::string hint = "") {
  throw ConfigError("metrics", {.what = std::move(what),
                                .expected = std::move(expected),
                                .got = std::move(got),
                                .hint = std::move(hint)});
}

void require_own_states(const MetricStates& states, const std::string& action) {
  if (!states.own) return;
  refuse(states.owner + " cannot be " + action + " while it is synced", "states of this rank",
         "those of all ranks", "call unsync() or reset() first");
}

void check_declaration(const MetricStates& states, const std::string& name, const at::Tensor& initial,
                       StateReduction reduction) {
  const auto what = states.owner + ": state " + name;
  if (std::ranges::count(states.states, name, &MetricState::name) > 0)
    refuse(what, "a name of its own", "one that is taken");
  if (reduction == StateReduction::kCat) refuse(what, "add_cat_state() for rows", "add_state()");
  if (!initial.defined()) refuse(what, "a tensor", "an undefined one");
  const bool is_count = initial.scalar_type() == at::kLong && reduction == StateReduction::kSum;
  if (initial.scalar_type() != at::kDouble && !is_count)
    refuse(what, "float64, or int64 to be summed", c10::toString(initial.scalar_type()));
}

void check_batch(const MetricStates& states, const std::vector<at::Tensor>& batch) {
  require_own_states(states, "updated");
  if (batch.size() != states.states.size()) {
    throw DataError("metrics", {.what = states.owner + ": a batch does not fit the states",
                                .expected = std::to_string(states.states.size()) + " tensors",
                                .got = std::to_string(batch.size())});
  }
  for (std::size_t i = 0; i < batch.size(); ++i) detail::check_fits(states.owner, states.states[i], batch[i]);
}

void take_up(MetricStates& states, const std::vector<at::Tensor>& batch) {
  ++states.update_count;
  states.revision = detail::next_revision();
  for (std::size_t i = 0; i < batch.size(); ++i)
    detail::take_up(states.states[i], batch[i], states.update_count);
}

StateValue stored(const MetricState& state) {
  if (state.reduction != StateReduction::kCat) return state.value;
  return state.parts.empty() ? StateList() : StateList(std::vector{value_of(state)});
}

MetricState loaded(const MetricState& declared, const StateTree& tree) {
  MetricState state{declared.name, declared.reduction, declared.initial, {}, {}};
  if (state.reduction == StateReduction::kCat) {
    state.parts = tree.get_all<at::Tensor>(state.name);
    return state;
  }
  state.value = at::empty_like(declared.initial);
  tree.copy_to(state.name, state.value);
  return state;
}

// The states without duplicates: metrics of a collection may share some.
std::vector<MetricStates*> distinct(std::vector<MetricStates*> states) {
  std::vector<MetricStates*> once;
  for (auto* each : states) {
    if (std::ranges::find(once, each) == once.end()) once.push_back(each);
  }
  return once;
}

}  // namespace

Metric::Metric(std::string name) : states_(std::make_shared<MetricStates>(MetricStates{std::move(name)})) {}
Metric::~Metric() = default;
Metric::Metric(Metric&&) noexcept = default;
Metric& Metric::operator=(Metric&&) noexcept = default;

const std::string& Metric::name() const { return states_->owner; }
bool Metric::is_synced() const { return states_->own.has_value(); }
std::int64_t Metric::update_count() const { return states_->update_count; }

void Metric::reset() {
  states_->states = detail::initial_states(states_->states);
  states_->own.reset();
  states_->update_count = 0;
  states_->revision = detail::next_revision();
  states_->is_loaded = false;
}

void Metric::sync(const Communicator& comm) {
  Metric* const self = this;
  metrics::sync(std::span(&self, 1), comm);
}

void Metric::unsync() {
  if (!states_->own) refuse(name() + " cannot be unsynced", "a sync() before", "none");
  states_->states = *std::exchange(states_->own, std::nullopt);
}

StateTree Metric::state() const {
  StateTree tree;
  tree.set("update_count", states_->update_count);
  for (const auto& state : states_->own ? *states_->own : states_->states)
    tree.set(state.name, stored(state));
  return tree;
}

void Metric::load_state(const StateTree& tree) {
  const auto update_count = tree.get<std::int64_t>("update_count");
  std::vector<MetricState> states;
  for (const auto& declared : states_->states) states.push_back(loaded(declared, tree));
  states_->states = std::move(states);
  states_->own.reset();
  states_->update_count = update_count;
  states_->revision = detail::next_revision();
  states_->is_loaded = true;
}

Metric::StateId Metric::add_state(std::string name, const at::Tensor& initial, StateReduction reduction) {
  check_declaration(*states_, name, initial, reduction);
  const auto value = initial.detach().to(at::kCPU).clone();
  states_->states.push_back({std::move(name), reduction, value, value, {}});
  return {states_->states.size() - 1};
}

Metric::StateId Metric::add_cat_state(std::string name) {
  check_declaration(*states_, name, at::empty({0}, at::kDouble), StateReduction::kSum);
  states_->states.push_back({std::move(name), StateReduction::kCat, {}, {}, {}});
  return {states_->states.size() - 1};
}

void Metric::update_states(const std::vector<at::Tensor>& batch) {
  check_batch(*states_, batch);
  take_up(*states_, batch);
}

at::Tensor Metric::forward_states(const std::vector<at::Tensor>& batch) {
  check_batch(*states_, batch);
  auto before = *states_;
  reset();
  take_up(*states_, batch);
  at::Tensor value;
  try {
    value = compute();
  } catch (...) {
    *states_ = std::move(before);
    throw;
  }
  *states_ = std::move(before);
  take_up(*states_, batch);
  return value;
}

at::Tensor Metric::value(StateId id) const { return value_of(states_->states.at(id.index)); }

void sync(std::span<Metric* const> metrics, const Communicator& comm) {
  std::vector<MetricStates*> all;
  for (const auto* metric : metrics) all.push_back(metric->states_.get());
  all = distinct(std::move(all));
  std::vector<std::vector<MetricState>> reduced;  // nothing changes where a collective fails
  std::vector<MetricState*> states;
  for (const auto* each : all) {
    require_own_states(*each, "synced");
    reduced.push_back(each->states);
  }
  for (auto& each : reduced) {
    for (auto& state : each) states.push_back(&state);
  }
  detail::reduce_over_ranks(states, comm);
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i]->own = std::exchange(all[i]->states, std::move(reduced[i]));
}

std::vector<at::Tensor> finish_epoch(std::span<Metric* const> metrics, const Communicator& comm) {
  sync(metrics, comm);
  std::vector<at::Tensor> values;
  for (const auto* metric : metrics) values.push_back(metric->compute());
  for (auto* metric : metrics) metric->reset();
  return values;
}

void PredictionMetric::update(const at::Tensor& preds, const at::Tensor& target) {
  lockstep::detail::refuse_in_recording_thread("update() of a metric, whose state the host keeps,");
  const at::NoGradGuard no_grad;
  update_states(batch_states(preds, target));
}

at::Tensor PredictionMetric::forward(const at::Tensor& preds, const at::Tensor& target) {
  const at::NoGradGuard no_grad;
  return forward_states(batch_states(preds, target));
}

bool PredictionMetric::has_states_of(const PredictionMetric&) const { return false; }

}  // namespace lockstep::metrics

namespace lockstep {

std::span<const OptionName<MonitorMode>> option_names(MonitorMode) {
  static constexpr OptionName<MonitorMode> kNames[] = {{"min", MonitorMode::kMin},
                                                       {"max", MonitorMode::kMax}};
  return kNames;
}

}  // namespace lockstep
