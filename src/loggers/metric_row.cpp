#include "loggers/metric_row.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

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

std::string as_utf8(const std::string& bytes) {
  using Json = nlohmann::json;
  if (is_utf8(bytes)) return bytes;
  return Json::parse(Json(bytes).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

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

}  // namespace lockstep::detail
