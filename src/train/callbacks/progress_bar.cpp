#include <lockstep/train/callbacks/progress_bar.h>

#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/data/any_loader.h>

#include "train/callbacks/progress_text.h"
#include "train/logging/terminal.h"

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

// A row is owed for each epoch that was begun.
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
  table_columns_.clear();
}

void ProgressBar::begin_epoch(const TrainContext& context) {
  epoch_ = context.current_epoch();
  begin(training_, "Epoch " + std::to_string(epoch_));
}

void ProgressBar::on_train_epoch_start(TrainContext& context) {
  finish_epoch(context);
  if (is_shown(context)) begin_epoch(context);
}

// Of an epoch that another process began the start is not seen.
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

}  // namespace lockstep
