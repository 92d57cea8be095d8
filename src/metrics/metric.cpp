#include <lockstep/metrics/metric.h>

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include <lockstep/base/error.h>

#include "metrics/metric_states.h"

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

// Each once, although metrics of a collection share some.
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
  std::vector<std::vector<MetricState>> reduced;  // a collective may fail: nothing has changed then
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

}  // namespace lockstep::metrics
