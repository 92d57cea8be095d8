#include <lockstep/metrics/metric_collection.h>

#include <algorithm>

#include <ATen/core/grad_mode.h>

#include "metrics/inputs.h"
#include "metrics/metric.h"

namespace lockstep::metrics {

MetricCollection::MetricCollection(MetricCollectionOptions options) : options_(std::move(options)) {}

void MetricCollection::add(std::string name, std::unique_ptr<PredictionMetric> metric) {
  const auto what = "MetricCollection: metric " + name;
  if (!metric) detail::refuse_option(what, "a metric", "a null pointer");
  const auto is_updated = [](const Entry& entry) { return entry.metric->update_count() > 0; };
  if (metric->update_count() > 0 || std::ranges::any_of(entries_, is_updated))
    detail::refuse_option(what, "metrics without updates", "updated ones");
  if (std::ranges::count(entries_, name, &Entry::name) > 0)
    detail::refuse_option(what, "a name of its own", "one that is taken");
  const auto leader = std::ranges::find_if(
      entries_, [&](const Entry& entry) { return entry.is_leader && metric->has_states_of(*entry.metric); });
  const bool is_leader = leader == entries_.end();
  if (!is_leader) metric->states_ = leader->metric->states_;
  entries_.push_back({std::move(name), std::move(metric), is_leader});
}

void MetricCollection::update(const at::Tensor& preds, const at::Tensor& target) {
  const at::NoGradGuard no_grad;
  std::vector<std::pair<PredictionMetric*, std::vector<at::Tensor>>> batches;
  for (const auto& entry : entries_) {
    if (entry.is_leader) batches.emplace_back(entry.metric.get(), entry.metric->batch_states(preds, target));
  }
  for (const auto& [metric, batch] : batches) metric->update_states(batch);
}

std::vector<std::pair<std::string, at::Tensor>> MetricCollection::compute() const {
  std::vector<std::pair<std::string, at::Tensor>> values;
  for (const auto& [name, metric] : metrics()) values.emplace_back(name, metric->compute());
  return values;
}

void MetricCollection::reset() {
  for (const auto& entry : entries_) entry.metric->reset();
}

void MetricCollection::sync(const Communicator& comm) {
  std::vector<Metric*> all;
  for (const auto& entry : entries_) all.push_back(entry.metric.get());
  metrics::sync(all, comm);
}

void MetricCollection::unsync() {
  for (const auto& entry : entries_) {
    if (entry.is_leader) entry.metric->unsync();
  }
}

StateTree MetricCollection::state() const {
  StateTree tree;
  for (const auto& entry : entries_) tree.set(entry.name, entry.metric->state());
  return tree;
}

void MetricCollection::load_state(const StateTree& tree) {
  const auto before = state();
  try {
    for (const auto& entry : entries_) entry.metric->load_state(tree.get<StateTree>(entry.name));
  } catch (...) {
    for (const auto& entry : entries_) entry.metric->load_state(before.get<StateTree>(entry.name));
    throw;
  }
}

std::vector<NamedMetric> MetricCollection::metrics() const {
  std::vector<NamedMetric> named;
  for (const auto& entry : entries_)
    named.push_back({options_.prefix + entry.name + options_.postfix, entry.metric.get()});
  return named;
}

std::vector<std::vector<std::string>> MetricCollection::compute_groups() const {
  std::vector<std::vector<std::string>> groups;
  for (const auto& leader : entries_) {
    if (!leader.is_leader) continue;
    auto& group = groups.emplace_back();
    for (const auto& entry : entries_) {
      if (entry.metric->states_ == leader.metric->states_) group.push_back(entry.name);
    }
  }
  return groups;
}

}  // namespace lockstep::metrics
