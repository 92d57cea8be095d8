#include "train/metric_log.h"

#include <algorithm>
#include <limits>
#include <sstream>

#include <ATen/ops/tensor.h>

#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

double neutral(ReduceFx fx) {
  if (fx == ReduceFx::kMin) return std::numeric_limits<double>::infinity();
  if (fx == ReduceFx::kMax) return -std::numeric_limits<double>::infinity();
  return 0;
}

// Reduces all numbers in place by one collective.
void reduce_all(const Communicator& communicator, std::vector<double>& numbers, ReduceOp op) {
  if (numbers.empty() || communicator.size() == 1) return;
  auto tensor = at::tensor(numbers, at::kDouble);
  communicator.all_reduce(tensor, op);
  std::copy_n(tensor.const_data_ptr<double>(), numbers.size(), numbers.begin());
}

[[noreturn]] void refuse(std::string_view name, std::string expected, std::string got, std::string hint) {
  throw ConfigError("train", {.what = "log(\"" + std::string(name) + "\")",
                              .expected = std::move(expected),
                              .got = std::move(got),
                              .where = "",
                              .hint = std::move(hint)});
}

}  // namespace

MetricLog::Entry& MetricLog::entry_of(std::string_view name, const LogOptions& options) {
  const auto found = std::ranges::find(entries_, name, &Entry::name);
  if (found != entries_.end()) return *found;

  Entry entry{.name = std::string(name), .step_name = {}, .epoch_name = {}, .options = options};
  entry.on_step = options.on_step.value_or(scope_.on_step);
  entry.on_epoch = options.on_epoch.value_or(scope_.on_epoch);
  if (!entry.on_step && !entry.on_epoch) refuse(name, "on_step or on_epoch", "both false", "");
  if (entry.on_step && !scope_.step_allowed) {
    refuse(name, "on_epoch", "on_step in a hook that belongs to no batch", "log it with {.on_epoch = true}");
  }
  const bool forked = entry.on_step && entry.on_epoch;
  entry.step_name = forked ? entry.name + "_step" : entry.name;
  entry.epoch_name = forked ? entry.name + "_epoch" : entry.name;
  entry.accumulated = neutral(options.reduce_fx);
  return entries_.emplace_back(std::move(entry));
}

void MetricLog::log(std::string_view name, double value, const LogOptions& options) {
  if (!scope_.allowed) {
    refuse(name, "a call from a step, a batch hook or an epoch hook", "a hook that cannot log", "");
  }
  Entry& entry = entry_of(name, options);
  if (entry.on_step) {
    entry.step_value = value;
    entry.has_step_value = true;
    publish(entry, entry.step_name, value);
  }
  if (!entry.on_epoch) return;
  const double weight = static_cast<double>(options.batch_size.value_or(batch_size_));
  switch (entry.options.reduce_fx) {
    case ReduceFx::kMean:
      entry.accumulated += value * weight;
      break;
    case ReduceFx::kSum:
      entry.accumulated += value;
      break;
    case ReduceFx::kMin:
      entry.accumulated = std::min(entry.accumulated, value);
      break;
    case ReduceFx::kMax:
      entry.accumulated = std::max(entry.accumulated, value);
      break;
  }
  entry.weight += weight;
}

MetricRow MetricLog::step_row() {
  MetricRow row;
  for (Entry& entry : entries_) {
    if (entry.has_step_value && entry.options.logger) row.emplace_back(entry.step_name, entry.step_value);
    entry.has_step_value = false;
  }
  return row;
}

MetricRow MetricLog::synced_step_row(const Communicator& communicator) {
  std::vector<Entry*> synced;
  std::vector<double> values;
  for (Entry& entry : entries_) {
    if (!entry.has_step_value || !entry.options.sync_dist) continue;
    synced.push_back(&entry);
    values.push_back(entry.step_value);
  }
  reduce_all(communicator, values, ReduceOp::kAvg);
  for (std::size_t i = 0; i < synced.size(); ++i) {
    synced[i]->step_value = values[i];
    publish(*synced[i], synced[i]->step_name, values[i]);
  }
  return step_row();
}

void MetricLog::adopt_names(const Communicator& communicator) {
  // One line per metric: ReduceFx, prog_bar, logger, name.
  std::string own;
  for (const Entry& entry : entries_) {
    if (!entry.on_epoch || !entry.options.sync_dist) continue;
    own += std::to_string(static_cast<int>(entry.options.reduce_fx)) + (entry.options.prog_bar ? '1' : '0') +
           (entry.options.logger ? '1' : '0') + entry.name + '\n';
  }
  for (const auto& lines : communicator.all_gather_bytes(own)) {
    std::istringstream stream(lines);
    for (std::string line; std::getline(stream, line);) {
      const LogOptions options{.prog_bar = line[1] == '1',
                               .logger = line[2] == '1',
                               .on_step = false,
                               .on_epoch = true,
                               .reduce_fx = static_cast<ReduceFx>(line[0] - '0'),
                               .sync_dist = true,
                               .batch_size = {}};
      entry_of(line.substr(3), options);
    }
  }
}

MetricRow MetricLog::finish_epoch(const Communicator& communicator) {
  std::vector<double> sums, minima, maxima;
  const auto numbers_of = [&](ReduceFx fx) -> std::vector<double>& {
    return fx == ReduceFx::kMin ? minima : fx == ReduceFx::kMax ? maxima : sums;
  };
  // Ranks may have logged in another order; names are the same everywhere.
  std::vector<Entry*> epoch_entries;
  for (Entry& entry : entries_) {
    if (entry.on_epoch) epoch_entries.push_back(&entry);
  }
  std::vector<Entry*> synced = epoch_entries;
  std::erase_if(synced, [](const Entry* entry) { return !entry->options.sync_dist; });
  std::ranges::sort(synced, {}, [](const Entry* entry) -> const std::string& { return entry->name; });
  for (const Entry* entry : synced) {
    numbers_of(entry->options.reduce_fx).push_back(entry->accumulated);
    if (entry->options.reduce_fx == ReduceFx::kMean) sums.push_back(entry->weight);
  }
  reduce_all(communicator, sums, ReduceOp::kSum);
  reduce_all(communicator, minima, ReduceOp::kMin);
  reduce_all(communicator, maxima, ReduceOp::kMax);
  auto sum = sums.begin(), minimum = minima.begin(), maximum = maxima.begin();
  for (Entry* entry : synced) {
    auto& next = entry->options.reduce_fx == ReduceFx::kMin   ? minimum
                 : entry->options.reduce_fx == ReduceFx::kMax ? maximum
                                                              : sum;
    entry->accumulated = *next++;
    if (entry->options.reduce_fx == ReduceFx::kMean) entry->weight = *sum++;
  }

  MetricRow row;
  for (Entry* entry : epoch_entries) {
    double value = entry->accumulated;
    if (entry->options.reduce_fx == ReduceFx::kMean) value /= entry->weight;
    publish(*entry, entry->epoch_name, value);
    if (entry->options.logger) row.emplace_back(entry->epoch_name, value);
  }
  entries_.clear();
  return row;
}

void MetricLog::publish(const Entry& entry, const std::string& forked_name, double value) {
  board_.callback.insert_or_assign(entry.name, value);
  if (forked_name != entry.name) board_.callback.insert_or_assign(forked_name, value);
  if (entry.options.prog_bar) board_.progress_bar.insert_or_assign(forked_name, value);
}

}  // namespace lockstep::detail
