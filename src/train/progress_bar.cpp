#include "train/progress_bar.h"

#include <unistd.h>

#include <cstdio>
#include <sstream>

#include <lockstep/data/any_loader.h>

namespace lockstep::detail {
namespace {

using namespace std::chrono_literals;

constexpr auto kRedrawEvery = 100ms;
constexpr auto kLineEvery = 10s;
constexpr int kBarCells = 20;

bool bar_is_drawn = false;  // by this process, on the terminal's current line

void erase_bar() {
  if (bar_is_drawn) std::fputs("\r\033[K", stdout);
  bar_is_drawn = false;
}

double seconds_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

template <class... Values>
std::string printed(const char* format, Values... values) {
  char text[128];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<long>(seconds);
  return printed("%02ld:%02ld", whole / 60, whole % 60);
}

std::string cells(double fraction) {
  const int full = static_cast<int>(fraction * kBarCells);
  std::string text;
  for (int cell = 0; cell < kBarCells; ++cell) text += cell < full ? "█" : " ";
  return text;
}

std::string metrics_text(const Metrics& metrics, const char* separator) {
  std::string text;
  for (const auto& [name, value] : metrics) text += separator + name + printed("=%.4g", value);
  return text;
}

// "3/10"; of a stream that has not told its length yet, "3/?".
std::string place_text(const StepContext& step) {
  const auto total = step.num_training_batches();
  return std::to_string(step.batch_idx() + 1) + '/' + (total == kUnknownLength ? "?" : std::to_string(total));
}

// As Lightning shows the results of validate and test.
void print_results(const char* title, const Metrics& metrics) {
  std::string rule;
  for (int cell = 0; cell < 55; ++cell) rule += "─";
  print_line(rule);
  print_line(printed("%25s  %25s", title, "Value"));
  print_line(rule);
  for (const auto& [name, value] : metrics) print_line(printed("%25s  %25.8g", name.c_str(), value));
  print_line(rule);
}

}  // namespace

void print_line(std::string_view text) {
  erase_bar();
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

ProgressBar::ProgressBar() : on_terminal_(isatty(STDOUT_FILENO) == 1) {}

void ProgressBar::on_train_start(TrainContext&) {
  epoch_ = -1;
  table_columns_.clear();
}

void ProgressBar::on_train_epoch_start(TrainContext& context) {
  finish_epoch(context);
  epoch_ = context.current_epoch();
  epoch_start_ = Clock::now();
  next_update_ = epoch_start_ + (on_terminal_ ? Clock::duration(kRedrawEvery) : Clock::duration(kLineEvery));
}

void ProgressBar::on_train_batch_end(StepContext& step, const TrainOutput&) {
  const auto now = Clock::now();
  if (now < next_update_) return;
  if (on_terminal_) {
    draw(step, now);
  } else {
    report_line(step, now);
  }
}

void ProgressBar::on_train_end(TrainContext& context) { finish_epoch(context); }

void ProgressBar::on_validation_end(TrainContext& context) {
  if (context.stage() == Stage::kValidate) print_results("Validate metric", context.callback_metrics());
}

void ProgressBar::on_test_end(TrainContext& context) {
  print_results("Test metric", context.callback_metrics());
}

void ProgressBar::on_exception(TrainContext&, const std::exception&) { erase_bar(); }

void ProgressBar::draw(const StepContext& step, Clock::time_point now) {
  next_update_ = now + kRedrawEvery;
  const double done = static_cast<double>(step.batch_idx() + 1);
  const double total = static_cast<double>(step.num_training_batches());
  const bool ends = step.num_training_batches() != kUnknownLength;
  const double elapsed = seconds_between(epoch_start_, now);
  std::ostringstream line;
  line << "\r\033[KEpoch " << epoch_ << ": ";
  if (ends) line << printed("%3.0f%%", 100 * done / total) << '|' << cells(done / total) << "| ";
  line << place_text(step) << " [" << clock_text(elapsed) << '<'
       << (ends ? clock_text(elapsed / done * (total - done)) : "?") << printed(", %.1fit/s", done / elapsed)
       << metrics_text(step.progress_bar_metrics(), ", ") << ']';
  std::fputs(line.str().c_str(), stdout);
  std::fflush(stdout);
  bar_is_drawn = true;
}

void ProgressBar::report_line(const StepContext& step, Clock::time_point now) {
  next_update_ = now + kLineEvery;
  const double elapsed = seconds_between(epoch_start_, now);
  std::ostringstream line;
  line << "epoch " << epoch_ << ": batch " << place_text(step)
       << printed(", %.1f it/s", static_cast<double>(step.batch_idx() + 1) / elapsed)
       << metrics_text(step.progress_bar_metrics(), ", ");
  print_line(line.str());
}

// Metrics without the _step forks; of a forked metric the plain name repeats its _epoch value.
std::vector<std::string> ProgressBar::columns(const Metrics& metrics) const {
  std::vector<std::string> names;
  for (const auto& [name, value] : metrics) {
    const bool forked = metrics.contains(name + "_epoch");
    if (!name.ends_with("_step") && !forked) names.push_back(name);
  }
  return names;
}

void ProgressBar::finish_epoch(const TrainContext& context) {
  if (epoch_ < 0) return;
  const auto& metrics = context.callback_metrics();
  const auto width = [](const std::string& name) {
    return static_cast<int>(std::max<std::size_t>(name.size(), 10));
  };
  if (const auto names = columns(metrics); names != table_columns_) {
    table_columns_ = names;
    std::string header = printed("%5s  %8s", "epoch", "step");
    for (const auto& name : names) header += printed("  %*s", width(name), name.c_str());
    print_line(header + printed("  %8s", "seconds"));
  }
  std::string row =
      printed("%5lld  %8lld", static_cast<long long>(epoch_), static_cast<long long>(context.global_step()));
  for (const auto& name : table_columns_) row += printed("  %*.5g", width(name), metrics.find(name)->second);
  print_line(row + printed("  %8.2f", seconds_between(epoch_start_, Clock::now())));
  epoch_ = -1;
}

}  // namespace lockstep::detail
