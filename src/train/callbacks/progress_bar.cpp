#include "train/callbacks/progress_bar.h"

#include <lockstep/train/callbacks/progress_bar.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <utility>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/data/any_loader.h>

#include "train/logging/terminal.h"

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

namespace lockstep {
namespace {

using namespace std::chrono_literals;

constexpr auto kRedrawEvery = 100ms;
constexpr auto kLineEvery = 10s;

void print_lines(std::span<const std::string> lines) {
  for (const auto& line : lines) detail::print_line(line);
}

}  // namespace

ProgressBar::ProgressBar(ProgressBarOptions options) : options_(options) {
  if (options_.refresh_rate >= 0) return;
  throw ConfigError("train", {.what = "ProgressBar: refresh_rate",
                              .expected = ">= 0",
                              .got = std::to_string(options_.refresh_rate)});
}

void ProgressBar::disable() {
  is_enabled_ = false;
  detail::erase_block();
}

Metrics ProgressBar::metrics(const TrainContext& context) const { return context.progress_bar_metrics(); }

bool ProgressBar::is_shown(const TrainContext& context) const {
  return is_enabled_ && context.is_global_zero();
}

void ProgressBar::begin(std::optional<Running>& running, std::string description) {
  const auto now = Clock::now();
  running = {.pass = {.description = std::move(description)}, .start = now};
  next_update_ = now + (detail::can_draw() ? Clock::duration(kRedrawEvery) : Clock::duration(kLineEvery));
}

void ProgressBar::begin_evaluation(const TrainContext& context, std::string description) {
  if (is_shown(context)) begin(evaluation_, std::move(description));
}

void ProgressBar::advance(Running& running, const StepContext& step, std::int64_t total) {
  auto& pass = running.pass;
  pass.done = step.batch_idx() + 1;
  pass.total = total == kUnknownLength ? std::nullopt : std::optional(total);
  if (options_.refresh_rate > 0 && pass.done % options_.refresh_rate == 0) update(step);
}

void ProgressBar::advance_evaluation(const StepContext& step) {
  if (is_shown(step) && evaluation_) advance(*evaluation_, step, step.num_evaluation_batches());
}

void ProgressBar::end_evaluation(const TrainContext& context, const char* title) {
  evaluation_.reset();
  if (!is_shown(context)) return;
  if (!training_) detail::erase_block();
  if (title != nullptr) print_lines(detail::result_lines(title, context.callback_metrics()));
}

std::vector<ProgressPass> ProgressBar::passes() const {
  std::vector<ProgressPass> found;
  for (const auto* running : {&training_, &evaluation_}) {
    if (!running->has_value()) continue;
    found.push_back((*running)->pass);
    found.back().elapsed = Clock::now() - (*running)->start;
  }
  return found;
}

void ProgressBar::update(const TrainContext& context) {
  const auto now = Clock::now();
  if (now < next_update_) return;
  const auto running = passes();
  const bool draws = detail::can_draw();
  next_update_ = now + (draws ? Clock::duration(kRedrawEvery) : Clock::duration(kLineEvery));
  if (draws) {
    detail::draw_block(lines(running, metrics(context), detail::terminal_columns()));
  } else {
    detail::print_line(detail::plain_line(running.back(), metrics(context)));
  }
}

// Prints the row of the epoch before, once for each epoch that was begun.
void ProgressBar::finish_epoch(const TrainContext& context) {
  if (!training_) return;
  const auto running = passes();
  training_.reset();
  if (!is_shown(context)) return;
  if (options_.leave && options_.refresh_rate > 0 && detail::can_draw()) {
    detail::erase_block();
    print_lines(lines(running, metrics(context), detail::terminal_columns()));
  }
  const auto& values = context.callback_metrics();
  if (auto names = detail::row_names(values); names != table_columns_) {
    table_columns_ = std::move(names);
    detail::print_line(detail::row_header(table_columns_));
  }
  detail::print_line(detail::row_text(epoch_, context.global_step(), table_columns_, values,
                                      running.front().elapsed.count()));
}

void ProgressBar::on_sanity_check_start(TrainContext& context) {
  begin_evaluation(context, "Sanity Checking");
}
void ProgressBar::on_sanity_check_end(TrainContext& context) { end_evaluation(context, nullptr); }

void ProgressBar::on_train_start(TrainContext&) {
  training_.reset();
  table_columns_.assign(1, "");  // no metric's name: the first row has a header, also without metrics
}

void ProgressBar::begin_epoch(const TrainContext& context) {
  epoch_ = context.current_epoch();
  begin(training_, "Epoch " + std::to_string(epoch_));
}

void ProgressBar::on_train_epoch_start(TrainContext& context) {
  finish_epoch(context);
  if (is_shown(context)) begin_epoch(context);
}

// The start of an epoch that the process before began is not seen.
void ProgressBar::on_train_batch_end(StepContext& step, const TrainOutput&) {
  if (!is_shown(step)) return;
  if (!training_) begin_epoch(step);
  advance(*training_, step, step.num_training_batches());
}

void ProgressBar::on_train_end(TrainContext& context) { finish_epoch(context); }

void ProgressBar::on_validation_start(TrainContext& context) {
  if (context.stage() != Stage::kSanityCheck) begin_evaluation(context, "Validation");
}
void ProgressBar::on_validation_batch_end(StepContext& step) { advance_evaluation(step); }
void ProgressBar::on_validation_end(TrainContext& context) {
  if (context.stage() == Stage::kSanityCheck) return;
  end_evaluation(context, context.stage() == Stage::kValidate ? "Validate metric" : nullptr);
}

void ProgressBar::on_test_start(TrainContext& context) { begin_evaluation(context, "Testing"); }
void ProgressBar::on_test_batch_end(StepContext& step) { advance_evaluation(step); }
void ProgressBar::on_test_end(TrainContext& context) { end_evaluation(context, "Test metric"); }

void ProgressBar::on_predict_start(TrainContext& context) { begin_evaluation(context, "Predicting"); }
void ProgressBar::on_predict_batch_end(StepContext& step, const at::Tensor&) { advance_evaluation(step); }
void ProgressBar::on_predict_end(TrainContext& context) { end_evaluation(context, nullptr); }

void ProgressBar::on_exception(TrainContext&, const std::exception&) {
  training_.reset();
  evaluation_.reset();
  detail::erase_block();
}

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

void describe(OptionVisitor& v, ProgressBarOptions& o) {
  v.field("refresh_rate", o.refresh_rate, "Batches from one update to the next; 0: there is no bar",
          at_least(0));
  v.field("leave", o.leave, "The bar of an epoch that is over stays");
}

}  // namespace lockstep
