#include "train/logging/metric_merge.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

namespace lockstep::detail {
namespace {

// Ranks run the same program, so the bytes of a number mean the same everywhere.
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

double neutral(ReduceFx reduce_fx) {
  if (reduce_fx == ReduceFx::kMin) return std::numeric_limits<double>::infinity();
  if (reduce_fx == ReduceFx::kMax) return -std::numeric_limits<double>::infinity();
  return 0;
}

std::vector<MetricPart> merge_parts(const Communicator& communicator, const std::vector<MetricPart>& own) {
  std::map<std::string, MetricPart> merged;
  for (const auto& bytes : communicator.all_gather_bytes(packed(own))) {
    for (auto& part : unpacked(bytes)) {
      const auto [place, is_new] = merged.try_emplace(part.name, part);
      if (is_new) continue;
      auto& total = place->second;
      total.value = accumulated(total.reduce_fx, total.value, part.value);
      total.weight += part.weight;
    }
  }
  std::vector<MetricPart> parts;
  for (auto& [name, part] : merged) parts.push_back(std::move(part));
  return parts;
}

}  // namespace lockstep::detail
