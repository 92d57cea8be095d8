#include "train/callbacks/progress_text.h"

#include <algorithm>
#include <cctype>
#include <cstdio>

namespace lockstep::detail {

std::string place_text(const ProgressPass& pass) {
  return std::to_string(pass.done) + '/' + (pass.total ? std::to_string(*pass.total) : "?");
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<long>(seconds);
  return printed("%02ld:%02ld", whole / 60, whole % 60);
}

double seconds_left(const ProgressPass& pass) {
  if (!pass.total || pass.done == 0) return 0;
  return pass.elapsed.count() / static_cast<double>(pass.done) * static_cast<double>(*pass.total - pass.done);
}

double batches_per_second(const ProgressPass& pass) {
  return pass.elapsed.count() > 0 ? static_cast<double>(pass.done) / pass.elapsed.count() : 0;
}

std::string metrics_text(const Metrics& metrics, const char* separator) {
  std::string text;
  for (const auto& [name, value] : metrics) text += separator + name + printed("=%.4g", value);
  return text;
}

std::string plain_line(const ProgressPass& pass, const Metrics& metrics) {
  auto name = pass.description;
  for (auto& letter : name) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return name + ": batch " + place_text(pass) + printed(", %.1f it/s", batches_per_second(pass)) +
         metrics_text(metrics, ", ");
}

// Leaves out NAME_step; the plain name of such a metric repeats its NAME_epoch value.
std::vector<std::string> row_names(const Metrics& metrics) {
  std::vector<std::string> names;
  for (const auto& [name, value] : metrics) {
    const bool forked = metrics.contains(name + "_epoch");
    if (!name.ends_with("_step") && !forked) names.push_back(name);
  }
  return names;
}

namespace {
int width_of(const std::string& name) { return static_cast<int>(std::max<std::size_t>(name.size(), 10)); }
}  // namespace

std::string row_header(std::span<const std::string> names) {
  std::string header = printed("%5s  %8s", "epoch", "step");
  for (const auto& name : names) header += printed("  %*s", width_of(name), name.c_str());
  return header + printed("  %8s", "seconds");
}

std::string row_text(std::int64_t epoch, std::int64_t step, std::span<const std::string> names,
                     const Metrics& metrics, double seconds) {
  auto row = printed("%5lld  %8lld", static_cast<long long>(epoch), static_cast<long long>(step));
  for (const auto& name : names) row += printed("  %*.5g", width_of(name), metrics.find(name)->second);
  return row + printed("  %8.2f", seconds);
}

std::vector<std::string> result_lines(const char* title, const Metrics& metrics) {
  std::string rule;
  for (int cell = 0; cell < 55; ++cell) rule += "─";
  std::vector<std::string> lines{rule, printed("%25s  %25s", title, "Value"), rule};
  for (const auto& [name, value] : metrics) lines.push_back(printed("%25s  %25.8g", name.c_str(), value));
  lines.push_back(rule);
  return lines;
}

}  // namespace lockstep::detail
