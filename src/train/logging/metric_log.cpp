#include "train/logging/metric_log.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

#include "device/step_recording.h"
#include "formats/file_text.h"

namespace lockstep::detail {
namespace {

constexpr std::string_view kLoaderSuffix = "/dataloader_idx_";

std::string loader_suffix(std::int64_t dataloader_idx) {
  return std::string(kLoaderSuffix) + std::to_string(dataloader_idx);
}

// "loss/dataloader_idx_1" -> "loss_epoch/dataloader_idx_1".
std::string forked(const std::string& name, std::string_view fork) {
  auto made = name;
  return made.insert(std::min(name.find(kLoaderSuffix), name.size()), fork);
}

[[noreturn]] void refuse(std::string_view name, std::string expected, std::string got, std::string hint) {
  throw ConfigError("train", {.what = "log(\"" + std::string(name) + "\")",
                              .expected = std::move(expected),
                              .got = std::move(got),
                              .where = "",
                              .hint = std::move(hint)});
}

// Checkpoints, reports and most loggers store names as text.
void require_text(std::string_view name) {
  if (!is_utf8(name)) refuse(name, "a name in UTF-8", "other bytes", "");
}

bool belongs_to(const std::string& name, std::size_t loader, std::size_t num_loaders) {
  return num_loaders < 2 || name.find(kLoaderSuffix) == std::string::npos ||
         name.ends_with(loader_suffix(static_cast<std::int64_t>(loader)));
}

double mean_or_total(ReduceFx reduce_fx, const Scalar& accumulated, double weight) {
  return accumulated.value() / (reduce_fx == ReduceFx::kMean ? weight : 1);
}

void set_value(MetricRow& row, const std::string& name, double value) {
  const auto known = std::ranges::find(row, name, &MetricRow::value_type::first);
  if (known == row.end()) return void(row.emplace_back(name, value));
  known->second = value;
}

}  // namespace

std::vector<Metrics> by_loader(const MetricRow& row, std::size_t num_loaders) {
  std::vector<Metrics> results(num_loaders);
  for (std::size_t loader = 0; loader < num_loaders; ++loader) {
    for (const auto& [name, value] : row)
      if (belongs_to(name, loader, num_loaders)) results[loader].insert_or_assign(name, value);
  }
  return results;
}

bool MetricLog::has_number(std::string_view name) const {
  return std::ranges::find(entries_, name, &Entry::name) != entries_.end();
}

MetricLog::Entry* MetricLog::find(std::string_view name, bool of_epoch_hook) {
  const auto found = std::ranges::find_if(entries_, [&](const Entry& entry) {
    return entry.name == name && entry.of_epoch_hook == of_epoch_hook;
  });
  return found != entries_.end() ? &*found : nullptr;
}

MetricLog::Entry& MetricLog::entry_of(std::string_view name, LogOptions options) {
  options.batch_size.reset();  // may differ from call to call
  Entry* const known = find(name, /*of_epoch_hook=*/!scope_.step_allowed);
  if (known != nullptr && !known->is_adopted) {
    if (known->options == options) return *known;
    refuse(name, "the options that it was logged with before", "different ones", "log it under another name");
  }
  require_text(name);
  if (std::ranges::find(metrics_, name, &LoggedMetric::name) != metrics_.end())
    refuse(name, "numbers under one name, and metrics under another", "a number; a metric has the name", "");
  const bool on_step = options.on_step.value_or(scope_.on_step);
  const bool on_epoch = options.on_epoch.value_or(scope_.on_epoch);
  if (!on_step && !on_epoch) refuse(name, "on_step or on_epoch", "both false", "");
  if (on_step && !scope_.step_allowed) {
    refuse(name, "on_epoch", "on_step in a hook that belongs to no batch", "log it with {.on_epoch = true}");
  }
  Entry entry = make_entry(std::string(name), options, on_step, on_epoch);
  entry.of_epoch_hook = !scope_.step_allowed;
  return known != nullptr ? *known = std::move(entry) : entries_.emplace_back(std::move(entry));
}

MetricLog::Entry MetricLog::make_entry(std::string name, const LogOptions& options, bool on_step,
                                       bool on_epoch) {
  const bool has_forks = on_step && on_epoch;
  Entry entry{.name = std::move(name), .step_name = {}, .epoch_name = {}, .options = options};
  entry.step_name = has_forks ? forked(entry.name, "_step") : entry.name;
  entry.epoch_name = has_forks ? forked(entry.name, "_epoch") : entry.name;
  entry.on_step = on_step;
  entry.on_epoch = on_epoch;
  entry.accumulated = neutral(options.reduce_fx);
  return entry;
}

void MetricLog::check_name(std::string_view name) const {
  if (!scope_.allowed)
    refuse(name, "a call from a step, a batch hook or an epoch hook", "a hook that cannot log", "");
  if (name.empty()) refuse(name, "a name", "none", "");
  if (name.find(kLoaderSuffix) != std::string_view::npos)
    refuse(name, "a name without " + std::string(kLoaderSuffix), "one with it",
           "the number of the loader is added where a stage has several");
}

std::string MetricLog::name_of(std::string_view name, const LogOptions& options) const {
  const bool is_of_loader = scope_.dataloader_idx && options.add_dataloader_idx;
  return std::string(name) + (is_of_loader ? loader_suffix(*scope_.dataloader_idx) : "");
}

void MetricLog::log(std::string_view name, const Scalar& value, const LogOptions& options) {
  check_name(name);
  if (auto* const recording = StepRecording::current())
    return log_in_replays(*recording, std::string(name), value, options);
  if (scope_.dataloader_idx) return add(name_of(name, options), value, options);
  add(name, value, options);
}

void MetricLog::log_in_replays(StepRecording& recording, std::string name, const Scalar& value,
                               const LogOptions& options) {
  if (!value.is_on_device())
    refuse_in_recording("log(\"" + name + "\") of a number that the host has computed");
  recording.after_replay(
      [this, name = std::move(name), value = value.tensor(), options] { log(name, Scalar(value), options); });
}

void MetricLog::add(std::string_view name, const Scalar& value, const LogOptions& options) {
  const auto samples = options.batch_size.value_or(batch_size_);
  if (samples < 1) refuse(name, "batch_size >= 1", std::to_string(samples), "");
  Entry& entry = entry_of(name, options);
  if (entry.on_step) {
    entry.step_value = value;
    entry.has_step_value = true;
    entry.is_synced = false;
    publish_step(entry);
  }
  if (!entry.on_epoch) return;
  const auto weight = static_cast<double>(samples);
  const auto fx = entry.options.reduce_fx;
  entry.accumulated = accumulated(fx, entry.accumulated, value, fx == ReduceFx::kMean ? weight : 1);
  entry.weight += weight;
}

void MetricLog::log(std::string_view plain_name, metrics::Metric& metric, const LogOptions& options) {
  check_name(plain_name);
  const auto name = name_of(plain_name, options);
  refuse_in_recording("log() of a metric, whose state the host keeps,");
  if (options.on_step.value_or(false) || !options.on_epoch.value_or(true))
    refuse(name, "a metric for the epoch", "on_step", "log the value of the step's own batch as a number");
  const auto known = std::ranges::find(metrics_, name, &LoggedMetric::name);
  if (known == metrics_.end() && !has_number(name)) {
    require_text(name);
    warn_if_counted_twice(name, metric);
    return void(metrics_.push_back({.name = name, .metric = &metric, .options = options}));
  }
  if (known != metrics_.end() && !known->is_here()) return claim(*known, metric);
  if (known == metrics_.end())
    refuse(name, "numbers under one name, and metrics under another", "a metric; a number has the name", "");
  if (known->metric != &metric)
    refuse(name, "one metric per name", "another one", "log it under another name");
}

// A metric whose epoch value came from a checkpoint was not reset at the end of that epoch.
void MetricLog::warn_if_counted_twice(const std::string& name, const metrics::Metric& metric) {
  if (std::erase(unclaimed_, name) == 0 || !is_loaded(metric)) return;
  log_warning("log(\"" + name +
              "\"): the metric came back by load_state(), too, and so this value counts batches of the epoch "
              "before; checkpoints keep metrics that are logged, leave it out of the module's state()");
}

MetricRow MetricLog::step_row() {
  MetricRow row;
  for (Entry& entry : entries_) {
    if (entry.has_step_value && entry.options.logger)
      row.emplace_back(entry.step_name, entry.step_value.value());
    entry.has_step_value = false;
  }
  return row;
}

void MetricLog::sync_step_values(const Communicator& communicator) {
  const auto awaits = [](const Entry& entry) {
    return entry.has_step_value && entry.options.sync_dist && !entry.is_synced;
  };
  std::vector<MetricPart> own;
  for (const Entry& entry : entries_) {
    if (awaits(entry)) own.push_back(part_of(entry, entry.step_value, /*weight=*/1));
  }
  for (const auto& part : merge_parts(communicator, own)) {
    Entry* entry = find(part.name, part.of_epoch_hook);
    if (entry == nullptr) entry = &adopt(part);
    if (!entry->on_step || !entry->options.sync_dist) continue;
    entry->step_value = mean_or_total(part.reduce_fx, part.value, part.weight);
    entry->has_step_value = entry->is_synced = true;
    publish_step(*entry);
  }
}

// A rank that had no batch, or logged no such metric, takes part with what the others have logged.
void MetricLog::merge_epoch(const Communicator& communicator) {
  std::vector<MetricPart> own;
  for (const Entry& entry : entries_) {
    if (entry.on_epoch && entry.options.sync_dist)
      own.push_back(part_of(entry, entry.accumulated, entry.weight));
  }
  for (const auto& part : merge_parts(communicator, own)) {
    Entry* entry = find(part.name, part.of_epoch_hook);
    if (entry == nullptr) entry = &adopt(part);
    entry->accumulated = part.value;
    entry->weight = part.weight;
  }
}

MetricPart MetricLog::part_of(const Entry& entry, double value, double weight) {
  return {.name = entry.name,
          .reduce_fx = entry.options.reduce_fx,
          .prog_bar = entry.options.prog_bar,
          .logger = entry.options.logger,
          .on_step = entry.on_step,
          .on_epoch = entry.on_epoch,
          .of_epoch_hook = entry.of_epoch_hook,
          .value = value,
          .weight = weight};
}

// Creates the entry that this rank would have if it had logged the metric. Its first call of log() may have
// other options, since those of the other rank are not known as they were asked.
MetricLog::Entry& MetricLog::adopt(const MetricPart& part) {
  const LogOptions options{
      .prog_bar = part.prog_bar, .logger = part.logger, .reduce_fx = part.reduce_fx, .sync_dist = true};
  Entry& entry = entries_.emplace_back(make_entry(part.name, options, part.on_step, part.on_epoch));
  entry.of_epoch_hook = part.of_epoch_hook;
  entry.is_adopted = true;
  return entry;
}

MetricRow MetricLog::reduce_epoch(const Communicator& communicator) {
  if (communicator.size() > 1) merge_epoch(communicator);
  // Those of the epoch's hooks come last, so that they take the places of others of their names.
  std::ranges::stable_partition(entries_, [](const Entry& entry) { return !entry.of_epoch_hook; });
  MetricRow row;
  for (const Entry& entry : entries_) {
    if (!entry.on_epoch) continue;
    const double value = mean_or_total(entry.options.reduce_fx, entry.accumulated, entry.weight);
    publish_epoch(entry, value);
    if (entry.options.logger) set_value(row, entry.epoch_name, value);
  }
  return row;
}

void MetricLog::show_epoch(const Communicator& communicator) {
  for (Entry& entry : entries_)
    if (entry.on_epoch) entry.accumulated = entry.accumulated.value();  // read from a device once
  auto kept = entries_;
  (void)reduce_epoch(communicator);
  entries_ = std::move(kept);
  keep_values(metrics_, communicator);
  for (const auto& logged : metrics_) {
    const bool has_value =
        logged.is_here() ? logged.revision.has_value() : logged.value && !std::isnan(*logged.value);
    if (has_value) publish(logged, *logged.value);
  }
}

MetricRow MetricLog::finish_epoch(const Communicator& communicator) {
  auto row = reduce_epoch(communicator);
  finish_metrics(communicator, row);
  entries_.clear();
  return row;
}

void MetricLog::finish_metrics(const Communicator& communicator, MetricRow& row) {
  const auto values = detail::finish_metrics(metrics_, communicator);
  for (const auto& logged : metrics_) {
    if (!logged.is_here()) unclaimed_.push_back(logged.name);
    const auto found = values.find(logged.name);
    if (found == values.end()) continue;
    const auto& [name, value] = *found;
    publish(logged, value);
    if (logged.options.logger) row.emplace_back(name, value);
  }
  metrics_.clear();
}

void MetricLog::finish_loader(const Communicator& communicator, std::int64_t dataloader_idx) {
  const auto rest = std::ranges::stable_partition(metrics_, [&](const LoggedMetric& logged) {
    return !logged.name.ends_with(loader_suffix(dataloader_idx));
  });
  const std::vector<LoggedMetric> finished(rest.begin(), rest.end());
  metrics_.erase(rest.begin(), rest.end());
  const auto values = detail::finish_metrics(finished, communicator);
  for (const auto& logged : finished) {
    const auto found = values.find(logged.name);
    if (found == values.end()) continue;
    auto entry =
        make_entry(logged.name, {.prog_bar = logged.options.prog_bar, .logger = logged.options.logger},
                   /*on_step=*/false, /*on_epoch=*/true);
    entry.accumulated = found->second;
    entry.weight = 1;
    entries_.push_back(std::move(entry));
  }
}

void MetricLog::reset() {
  for (const auto& logged : metrics_) logged.metric->reset();
  discard();
}

void MetricLog::show(const std::string& name, const Scalar& value) {
  board_.callback.set(name, value);
  if (measures_ && board_.validation.number > 0)
    board_.measured.insert_or_assign(name, board_.validation);
  else if (!board_.measured.empty())
    board_.measured.erase(name);
}

void MetricLog::publish(const LoggedMetric& logged, double value) {
  show(logged.name, value);
  if (logged.options.prog_bar) board_.progress_bar.set(logged.name, value);
}

// Of an evaluation callbacks see what the epoch has come to, as Lightning's.
void MetricLog::publish_step(const Entry& entry) {
  if (!measures_) {
    show(entry.name, entry.step_value);
    if (entry.step_name != entry.name) show(entry.step_name, entry.step_value);
  }
  if (entry.options.prog_bar) board_.progress_bar.set(entry.step_name, entry.step_value);
}

void MetricLog::publish_epoch(const Entry& entry, double value) {
  show(entry.name, value);
  if (entry.epoch_name != entry.name) show(entry.epoch_name, value);
  if (entry.options.prog_bar) board_.progress_bar.set(entry.epoch_name, value);
}

namespace {

ReduceFx reduce_fx_of(const StateTree& tree) {
  const auto& name = tree.get<std::string>("reduce_fx");
  const auto found = OptionType<ReduceFx>::parse(name);
  if (found) return *found;
  throw CheckpointError(
      "train", {.what = "state " + tree.path() + "/reduce_fx", .expected = found.error(), .got = name});
}

LogOptions options_of(const StateTree& tree) {
  LogOptions options{.prog_bar = tree.get<bool>("prog_bar"),
                     .logger = tree.get<bool>("logger"),
                     .reduce_fx = reduce_fx_of(tree),
                     .sync_dist = tree.get<bool>("sync_dist")};
  if (tree.contains("add_dataloader_idx")) options.add_dataloader_idx = tree.get<bool>("add_dataloader_idx");
  // Options that the program left open stay open, since later calls of log() must give the same options.
  if (tree.contains("on_step_asked")) options.on_step = tree.get<bool>("on_step_asked");
  if (tree.contains("on_epoch_asked")) options.on_epoch = tree.get<bool>("on_epoch_asked");
  return options;
}

void set_options(StateTree& tree, const LogOptions& options) {
  tree.set("prog_bar", options.prog_bar);
  tree.set("logger", options.logger);
  tree.set("reduce_fx", OptionType<ReduceFx>::print(options.reduce_fx));
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
    metric.set("of_epoch_hook", entry.of_epoch_hook);
    metric.set("is_adopted", entry.is_adopted);
    metric.set("on_step", entry.on_step);
    metric.set("on_epoch", entry.on_epoch);
    metric.set("accumulated", entry.accumulated.value());
    metric.set("weight", entry.weight);
    if (entry.has_step_value) {
      metric.set("step_value", entry.step_value.value());
      metric.set("is_synced", entry.is_synced);
    }
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
    // Older checkpoints do not say the next two, nor is_synced.
    if (metric.contains("of_epoch_hook")) entry.of_epoch_hook = metric.get<bool>("of_epoch_hook");
    if (metric.contains("is_adopted")) entry.is_adopted = metric.get<bool>("is_adopted");
    entry.accumulated = metric.get<double>("accumulated");
    entry.weight = metric.get<double>("weight");
    entry.has_step_value = metric.contains("step_value");
    if (entry.has_step_value) entry.step_value = metric.get<double>("step_value");
    if (metric.contains("is_synced")) entry.is_synced = metric.get<bool>("is_synced");
    entries.push_back(std::move(entry));
  }
  std::vector<LoggedMetric> metrics;
  if (state.contains("metric_objects")) {  // older checkpoints have none
    for (const auto& object : state.get_all<StateTree>("metric_objects"))
      metrics.push_back(saved_metric(object.get<std::string>("name"), options_of(object), object));
  }
  entries_ = std::move(entries);
  metrics_ = std::move(metrics);
}

}  // namespace lockstep::detail
