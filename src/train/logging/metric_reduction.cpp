// Reduces logged numbers and metric objects over ranks to one value per metric.
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include "train/logging/metric_log.h"

#include <ATen/ATen.h>

#include <lockstep/base/error.h>

#include "metrics/metric.h"

namespace lockstep::detail {
namespace {

using metrics::detail::SavedMetric;

// The ranks that have a metric, those on which it is an object rather than the state from a checkpoint, and
// those on which nothing has changed since its value was worked out.
struct Holders {
  std::set<int> all;
  std::set<int> here;
  std::set<int> unchanged;

  bool has_value_to_tell(int world_size) const { return static_cast<int>(here.size()) < world_size; }
};

using HoldersByName = std::map<std::string, Holders>;
using MetricsByName = std::map<std::string, const LoggedMetric*>;

MetricsByName by_name(const std::vector<LoggedMetric>& logged) {
  MetricsByName sorted;
  for (const auto& each : logged) sorted.emplace(each.name, &each);
  return sorted;
}

// Exchanges the names of metrics, each preceded by a flag and ended by a zero byte.
HoldersByName find_holders(const MetricsByName& own, const Communicator& communicator) {
  std::string bytes;
  for (const auto& [name, logged] : own) {
    const char kind = !logged->is_here() ? '0' : logged->is_unchanged() ? '2' : '1';
    bytes.append(1, kind).append(name) += '\0';
  }
  HoldersByName holders;
  const auto of_ranks = communicator.all_gather_bytes(bytes);
  for (int rank = 0; rank < static_cast<int>(of_ranks.size()); ++rank) {
    std::string_view left = of_ranks[static_cast<std::size_t>(rank)];
    while (!left.empty()) {
      const auto end = left.find('\0');
      auto& found = holders[std::string(left.substr(1, end - 1))];
      found.all.insert(rank);
      if (left.front() != '0') found.here.insert(rank);
      if (left.front() == '2') found.unchanged.insert(rank);
      left.remove_prefix(end + 1);
    }
  }
  return holders;
}

void require_on_all(const HoldersByName& holders, const Communicator& communicator) {
  for (const auto& [name, found] : holders) {
    for (int rank = 0; rank < communicator.size(); ++rank) {
      if (found.all.contains(rank)) continue;
      throw ConfigError("train",
                        {.what = "log(\"" + name + "\")",
                         .expected = "a metric that every rank logs, since all of them work out its value",
                         .got = "none on rank " + std::to_string(rank),
                         .hint = "a rank without a batch can log it in a hook of the epoch, such as "
                                 "on_validation_epoch_end"});
    }
  }
}

double number_of(const std::string& name, const at::Tensor& value) {
  if (value.numel() == 1) return value.item<double>();
  throw ConfigError("train", {.what = "log(\"" + name + "\")",
                              .expected = "a metric of one number",
                              .got = std::to_string(value.numel()) + " of them",
                              .hint = "log them one by one"});
}

// The metrics of `own` that all ranks have, at least one of them as an object: these can be computed.
MetricsByName computable(const MetricsByName& own, const HoldersByName& holders, int world_size) {
  MetricsByName found;
  for (const auto& [name, logged] : own) {
    const auto& known = holders.at(name);
    if (!known.here.empty() && static_cast<int>(known.all.size()) == world_size) found.emplace(name, logged);
  }
  return found;
}

void sync_all(const MetricsByName& logged, const Communicator& communicator) {
  std::vector<metrics::Metric*> metrics;
  for (const auto& [name, each] : logged) metrics.push_back(each->metric);
  if (!metrics.empty()) metrics::sync(metrics, communicator);
}

// The value of a synced metric; ranks that have no object get the value from one that has.
template <class Compute>
double value_on_all(const LoggedMetric& logged, const Holders& holders, const Communicator& communicator,
                    Compute compute) {
  const double own = logged.is_here() ? compute(logged) : 0;
  if (!holders.has_value_to_tell(communicator.size())) return own;
  const auto told = at::full({1}, own, at::kDouble);
  communicator.broadcast(told, *holders.here.begin());
  return told.item<double>();
}

// None where the metric was logged before it had a value, and where that is more than a number.
std::optional<double> value_so_far(const LoggedMetric& logged) try {
  const auto value = logged.metric->compute();
  return value.numel() == 1 ? std::optional(value.item<double>()) : std::nullopt;
} catch (const std::exception&) {
  return std::nullopt;
}

}  // namespace

bool LoggedMetric::is_unchanged() const { return revision == SavedMetric::revision(*metric); }

std::map<std::string, double> finish_metrics(const std::vector<LoggedMetric>& logged,
                                             const Communicator& communicator) {
  const auto own = by_name(logged);
  const auto holders = find_holders(own, communicator);
  require_on_all(holders, communicator);
  auto here = computable(own, holders, communicator.size());
  std::erase_if(here, [&](const auto& each) {
    return static_cast<int>(holders.at(each.first).unchanged.size()) == communicator.size();
  });
  sync_all(here, communicator);
  std::map<std::string, double> values;
  for (const auto& [name, each] : own) {
    if (!here.contains(name) && each->value) values[name] = *each->value;
  }
  for (const auto& [name, each] : here) {
    values[name] = value_on_all(*each, holders.at(name), communicator, [](const LoggedMetric& metric) {
      return number_of(metric.name, metric.metric->compute());
    });
  }
  for (const auto& each : logged) each.metric->reset();
  return values;
}

void keep_values(std::vector<LoggedMetric>& logged, const Communicator& communicator) {
  const auto own = by_name(logged);
  const auto holders = find_holders(own, communicator);
  const auto here = computable(own, holders, communicator.size());
  sync_all(here, communicator);
  std::map<std::string, double> values;
  std::set<std::string> computed;
  for (const auto& [name, each] : here) {
    values[name] = value_on_all(*each, holders.at(name), communicator, [&](const LoggedMetric& metric) {
      const auto value = value_so_far(metric);
      if (value) computed.insert(metric.name);
      return value.value_or(std::numeric_limits<double>::quiet_NaN());
    });
  }
  for (auto& each : logged) {
    if (!here.contains(each.name)) continue;
    each.value = values.at(each.name);
    if (each.metric->is_synced()) each.metric->unsync();  // one object may have two names
    each.revision.reset();
    if (computed.contains(each.name)) each.revision = SavedMetric::revision(*each.metric);
  }
}

void add_state(StateTree& tree, const LoggedMetric& logged) {
  tree.set("metric", SavedMetric::save(*logged.metric));
  if (logged.value) tree.set("value", *logged.value);
}

LoggedMetric saved_metric(std::string name, const LogOptions& options, const StateTree& tree) {
  LoggedMetric logged{.name = std::move(name), .metric = nullptr, .options = options};
  logged.saved = std::make_shared<SavedMetric>(tree.get<StateTree>("metric"));
  logged.metric = logged.saved.get();
  if (tree.contains("value")) logged.value = tree.get<double>("value");
  return logged;
}

bool is_loaded(const metrics::Metric& metric) { return SavedMetric::is_loaded(metric); }

void claim(LoggedMetric& logged, metrics::Metric& metric) {
  logged.saved->hand_over(metric);
  logged.saved = nullptr;
  logged.metric = &metric;
}

namespace {

// All ranks run the same program, so numbers have the same bytes on each.
template <class T>
void append(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
T take(std::string_view& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return value;
}

std::string packed(const std::vector<MetricPart>& parts) {
  std::string bytes;
  for (const auto& part : parts) {
    append(bytes, part.name.size());
    bytes += part.name;
    append(bytes, part.reduce_fx);
    append(bytes, part.prog_bar);
    append(bytes, part.logger);
    append(bytes, part.on_step);
    append(bytes, part.on_epoch);
    append(bytes, part.of_epoch_hook);
    append(bytes, part.value);
    append(bytes, part.weight);
  }
  return bytes;
}

std::vector<MetricPart> unpacked(std::string_view bytes) {
  std::vector<MetricPart> parts;
  while (!bytes.empty()) {
    MetricPart part;
    const auto length = take<std::size_t>(bytes);
    part.name = bytes.substr(0, length);
    bytes.remove_prefix(length);
    part.reduce_fx = take<ReduceFx>(bytes);
    part.prog_bar = take<bool>(bytes);
    part.logger = take<bool>(bytes);
    part.on_step = take<bool>(bytes);
    part.on_epoch = take<bool>(bytes);
    part.of_epoch_hook = take<bool>(bytes);
    part.value = take<double>(bytes);
    part.weight = take<double>(bytes);
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace

double accumulated(ReduceFx reduce_fx, double total, double value) {
  switch (reduce_fx) {
    case ReduceFx::kMin:
      return std::isnan(value) || value < total ? value : total;
    case ReduceFx::kMax:
      return std::isnan(value) || value > total ? value : total;
    case ReduceFx::kMean:
    case ReduceFx::kSum:
      return total + value;
  }
  return total;
}

Scalar accumulated(ReduceFx reduce_fx, const Scalar& total, const Scalar& value, double weight) {
  if (!value.is_on_device()) return accumulated(reduce_fx, total.value(), value.value() * weight);
  const at::NoGradGuard no_grad;
  const auto added = weight == 1 ? value.tensor() : value.tensor() * weight;
  const auto so_far = total.is_on_device() ? total.tensor() : at::full_like(added, total.value());
  switch (reduce_fx) {
    case ReduceFx::kMin:
      return Scalar::of_last_use(at::minimum(so_far, added));
    case ReduceFx::kMax:
      return Scalar::of_last_use(at::maximum(so_far, added));
    case ReduceFx::kMean:
    case ReduceFx::kSum:
      break;
  }
  return Scalar::of_last_use(so_far + added);
}

double neutral(ReduceFx reduce_fx) {
  if (reduce_fx == ReduceFx::kMin) return std::numeric_limits<double>::infinity();
  if (reduce_fx == ReduceFx::kMax) return -std::numeric_limits<double>::infinity();
  return 0;
}

std::vector<MetricPart> merge_parts(const Communicator& communicator, const std::vector<MetricPart>& own) {
  std::map<std::pair<std::string, bool>, MetricPart> merged;
  for (const auto& bytes : communicator.all_gather_bytes(packed(own))) {
    for (auto& part : unpacked(bytes)) {
      const auto [place, is_new] = merged.try_emplace(std::pair(part.name, part.of_epoch_hook), part);
      if (is_new) continue;
      auto& total = place->second;
      total.value = accumulated(total.reduce_fx, total.value, part.value);
      total.weight += part.weight;
    }
  }
  std::vector<MetricPart> parts;
  for (auto& [key, part] : merged) parts.push_back(std::move(part));
  return parts;
}

}  // namespace lockstep::detail

namespace lockstep {

std::span<const OptionName<ReduceFx>> option_names(ReduceFx) {
  static constexpr OptionName<ReduceFx> kNames[] = {{"mean", ReduceFx::kMean},
                                                    {"avg", ReduceFx::kMean},
                                                    {"sum", ReduceFx::kSum},
                                                    {"min", ReduceFx::kMin},
                                                    {"max", ReduceFx::kMax}};
  return kNames;
}

}  // namespace lockstep
