// SavedMetric: what a checkpoint holds of a metric whose object only its owner can make.
#include "metrics/metric.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>

#include <lockstep/base/error.h>

namespace lockstep::metrics::detail {
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
