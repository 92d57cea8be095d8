// What a MetricLog has collected of an epoch, as a StateTree.
#include <algorithm>
#include <utility>

#include <lockstep/base/error.h>

#include "train/logging/metric_log.h"

namespace lockstep::detail {
namespace {

constexpr std::pair<std::string_view, ReduceFx> kReduceFx[] = {
    {"mean", ReduceFx::kMean}, {"sum", ReduceFx::kSum}, {"min", ReduceFx::kMin}, {"max", ReduceFx::kMax}};

std::string name_of(ReduceFx reduce_fx) {
  return std::string(std::ranges::find(kReduceFx, reduce_fx, [](auto row) { return row.second; })->first);
}

ReduceFx reduce_fx_of(const StateTree& tree) {
  const auto& name = tree.get<std::string>("reduce_fx");
  const auto* row = std::ranges::find(kReduceFx, name, [](auto known) { return known.first; });
  if (row != std::end(kReduceFx)) return row->second;
  throw CheckpointError(
      "train",
      {.what = "state " + tree.path() + "/reduce_fx", .expected = "mean, sum, min or max", .got = name});
}

LogOptions options_of(const StateTree& tree) {
  LogOptions options{.prog_bar = tree.get<bool>("prog_bar"),
                     .logger = tree.get<bool>("logger"),
                     .reduce_fx = reduce_fx_of(tree),
                     .sync_dist = tree.get<bool>("sync_dist")};
  if (tree.contains("add_dataloader_idx")) options.add_dataloader_idx = tree.get<bool>("add_dataloader_idx");
  // The log call that goes on must give the same options: what it left open stays open.
  if (tree.contains("on_step_asked")) options.on_step = tree.get<bool>("on_step_asked");
  if (tree.contains("on_epoch_asked")) options.on_epoch = tree.get<bool>("on_epoch_asked");
  return options;
}

void set_options(StateTree& tree, const LogOptions& options) {
  tree.set("prog_bar", options.prog_bar);
  tree.set("logger", options.logger);
  tree.set("reduce_fx", name_of(options.reduce_fx));
  tree.set("sync_dist", options.sync_dist);
  tree.set("add_dataloader_idx", options.add_dataloader_idx);
  if (options.on_step) tree.set("on_step_asked", *options.on_step);
  if (options.on_epoch) tree.set("on_epoch_asked", *options.on_epoch);
}

}  // namespace

StateTree MetricLog::state() const {
  StateList metrics;
  for (const Entry& entry : entries_) {
    StateTree metric;
    metric.set("name", entry.name);
    set_options(metric, entry.options);
    metric.set("on_step", entry.on_step);
    metric.set("on_epoch", entry.on_epoch);
    metric.set("accumulated", entry.accumulated);
    metric.set("weight", entry.weight);
    if (entry.has_step_value) metric.set("step_value", entry.step_value);
    metrics.push_back(std::move(metric));
  }
  StateList objects;
  for (const auto& logged : metrics_) {
    StateTree object;
    object.set("name", logged.name);
    set_options(object, logged.options);
    add_state(object, logged);
    objects.push_back(std::move(object));
  }
  StateTree state;
  state.set("metrics", std::move(metrics));
  state.set("metric_objects", std::move(objects));
  return state;
}

void MetricLog::load_state(const StateTree& state) {
  std::vector<Entry> entries;
  for (const auto& metric : state.get_all<StateTree>("metrics")) {
    auto entry = make_entry(metric.get<std::string>("name"), options_of(metric), metric.get<bool>("on_step"),
                            metric.get<bool>("on_epoch"));
    entry.accumulated = metric.get<double>("accumulated");
    entry.weight = metric.get<double>("weight");
    entry.has_step_value = metric.contains("step_value");
    if (entry.has_step_value) entry.step_value = metric.get<double>("step_value");
    entries.push_back(std::move(entry));
  }
  std::vector<LoggedMetric> metrics;
  if (state.contains("metric_objects")) {  // older checkpoints have none
    for (const auto& object : state.get_all<StateTree>("metric_objects"))
      metrics.push_back(kept_metric(object.get<std::string>("name"), options_of(object), object));
  }
  entries_ = std::move(entries);
  metrics_ = std::move(metrics);
}

}  // namespace lockstep::detail
