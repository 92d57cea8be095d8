#include "loggers/log_records.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/option_codec.h>

#include "base/format.h"
#include "formats/file_text.h"

namespace lockstep::detail {
namespace {

constexpr double kMostWhole = 9007199254740992;  // 2^53, up to which a double holds every whole number

void set_metric(MetricRow& row, const Metric& metric) {
  auto name = as_utf8(metric.first);
  const auto known = std::ranges::find(row.metrics, name, &Metric::first);
  if (known != row.metrics.end()) {
    known->second = metric.second;
  } else {
    row.metrics.emplace_back(std::move(name), metric.second);
  }
}

}  // namespace

bool is_whole(double value) { return std::abs(value) <= kMostWhole && std::trunc(value) == value; }

std::vector<Metric> MetricRow::prefixed(const std::string& prefix) const {
  auto all = metrics;
  all.emplace_back("epoch", epoch);
  return detail::prefixed(prefix, all);
}

MetricRow row_of(std::span<const Metric> metrics, std::int64_t epoch, std::int64_t step) {
  MetricRow row{.epoch = static_cast<double>(epoch), .step = static_cast<double>(step), .whole_step = step};
  for (const auto& metric : metrics) {
    if (metric.first == "epoch") {
      row.epoch = metric.second;
    } else if (metric.first == "step") {
      row.step = metric.second;
      if (std::abs(metric.second) <= kMostWhole) row.whole_step = std::llround(metric.second);
    } else {
      set_metric(row, metric);
    }
  }
  return row;
}

namespace {

using Params = std::map<std::string, HyperParameter>;

constexpr std::size_t kMostOfPlainKey = 1000;  // YAML looks for the colon of a key within 1,024 characters

// Readers of YAML 1.1 take a number for a float only when it has a point.
std::string yaml_float(double value) {
  if (std::isnan(value)) return ".nan";
  if (std::isinf(value)) return value > 0 ? ".inf" : "-.inf";
  auto text = number_text(value);
  if (text.find('.') == std::string::npos) text.insert(std::min(text.find('e'), text.size()), ".0");
  return text;
}

std::string yaml_value(const HyperParameter& param) {
  return std::visit(
      [](const auto& value) -> std::string {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, bool>) return value ? "true" : "false";
        if constexpr (std::is_same_v<T, std::int64_t>) return std::to_string(value);
        if constexpr (std::is_same_v<T, double>) return yaml_float(value);
        if constexpr (std::is_same_v<T, std::string>) return yaml_scalar(as_utf8(value), true);
      },
      param);
}

class YamlWriter {
 public:
  explicit YamlWriter(const Params& params) : params_(params) {}

  /// The settings of [first, last), whose names all begin with `prefix`.
  void write(Params::const_iterator first, Params::const_iterator last, const std::string& prefix) {
    while (first != last) {
      const auto rest = first->first.substr(prefix.size());
      const auto slash = rest.find('/');
      if (slash == std::string::npos || params_.contains(prefix + rest.substr(0, slash))) {
        line(rest, " " + yaml_value(first->second));
        ++first;
        continue;
      }
      const auto group = prefix + rest.substr(0, slash + 1);
      const auto end =
          std::find_if(first, last, [&](const auto& row) { return !row.first.starts_with(group); });
      line(rest.substr(0, slash), "");
      ++depth_;
      write(first, end, group);
      --depth_;
      first = end;
    }
  }

  std::string text;

 private:
  void line(const std::string& key, const std::string& value) {
    const std::string indent(2 * depth_, ' ');
    const auto name = yaml_scalar(as_utf8(key), true);
    text += name.size() < kMostOfPlainKey ? indent + name + ":" + value + "\n"
                                          : indent + "? " + name + "\n" + indent + ":" + value + "\n";
  }

  const Params& params_;
  std::size_t depth_ = 0;
};

}  // namespace

std::string hparams_yaml(const Params& params) {
  if (params.empty()) return "{}\n";
  YamlWriter writer(params);
  writer.write(params.begin(), params.end(), "");
  return std::move(writer.text);
}

void HparamsFile::update(const HyperParameters& params) {
  for (const auto& [name, value] : params) params_[name] = value;
  changed_ = true;
}

void HparamsFile::write(const std::filesystem::path& folder) {
  if (!changed_) return;
  write_file_atomically(folder / "hparams.yaml", hparams_yaml(params_));
  changed_ = false;
}

}  // namespace lockstep::detail
