// What the bars that there are draw.
#include <algorithm>
#include <cmath>

#include <lockstep/base/env.h>
#include <lockstep/train/callbacks/progress_bar.h>

#include "train/callbacks/progress_text.h"

namespace lockstep {
namespace {

constexpr std::size_t kPlainCells = 20;
constexpr std::size_t kRichCells = 40;
constexpr const char* kDone = "\033[38;5;99m";      // violet
constexpr const char* kFinished = "\033[38;5;70m";  // green
constexpr const char* kRest = "\033[38;5;240m";     // grey
constexpr const char* kNumbers = "\033[36m";
constexpr const char* kPlain = "\033[0m";

double fraction_of(const ProgressPass& pass) {
  if (!pass.total || *pass.total == 0) return 0;
  return static_cast<double>(pass.done) / static_cast<double>(*pass.total);
}

std::string repeated(const char* text, std::size_t times) {
  std::string all;
  for (std::size_t i = 0; i < times; ++i) all += text;
  return all;
}

std::size_t full_cells(const ProgressPass& pass, std::size_t cells) {
  return std::min(cells, static_cast<std::size_t>(fraction_of(pass) * static_cast<double>(cells)));
}

std::string tqdm_line(const ProgressPass& pass, const Metrics& metrics) {
  std::string line = pass.description + ": ";
  if (pass.total) {
    const auto full = full_cells(pass, kPlainCells);
    line += detail::printed("%3.0f%%", std::floor(100 * fraction_of(pass))) + '|' + repeated("█", full) +
            repeated(" ", kPlainCells - full) + "| ";
  }
  const auto left = pass.total ? detail::clock_text(detail::seconds_left(pass)) : "?";
  return line + detail::place_text(pass) + " [" + detail::clock_text(pass.elapsed.count()) + '<' + left +
         detail::printed(", %.1fit/s", detail::batches_per_second(pass)) +
         detail::metrics_text(metrics, ", ") + ']';
}

std::string coloured(const char* colour, const std::string& text) {
  if (text.empty() || env::get("NO_COLOR")) return text;
  return colour + text + kPlain;
}

// "Epoch 0/9  ━━━━━━━━━━  12/40  00:03 • 00:07  4.1it/s"
std::string rich_line(const ProgressPass& pass, std::size_t description_columns, std::size_t cells) {
  std::string line = pass.description;
  line.resize(std::max(line.size(), description_columns), ' ');
  const auto full = full_cells(pass, cells);
  const bool is_done = pass.total == pass.done;
  line += ' ' + coloured(is_done ? kFinished : kDone, repeated("━", full)) +
          coloured(kRest, repeated("━", cells - full)) + ' ' + detail::place_text(pass) + ' ';
  const auto left = pass.total ? detail::clock_text(detail::seconds_left(pass)) : "--:--";
  return line + coloured(kNumbers, detail::clock_text(pass.elapsed.count()) + " • " + left) +
         coloured(kRest, detail::printed(" %.1fit/s", detail::batches_per_second(pass)));
}

}  // namespace

std::vector<std::string> TQDMProgressBar::lines(std::span<const ProgressPass> passes, const Metrics& metrics,
                                                std::size_t) const {
  return {tqdm_line(passes.back(), metrics)};
}

std::vector<std::string> RichProgressBar::lines(std::span<const ProgressPass> passes, const Metrics& metrics,
                                                std::size_t columns) const {
  std::size_t description_columns = 0;
  for (const auto& pass : passes)
    description_columns = std::max(description_columns, pass.description.size());
  std::vector<std::string> found;
  for (const auto& pass : passes)
    found.push_back(rich_line(pass, description_columns, std::min(kRichCells, columns / 2)));
  if (!metrics.empty()) found.push_back(detail::metrics_text(metrics, " ").substr(1));
  return found;
}

}  // namespace lockstep
