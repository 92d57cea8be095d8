// What a person sees of a run on rank 0: a bar on a terminal, plain lines elsewhere, and a table
// with one row per epoch in both.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/train/hooks.h>

namespace lockstep::detail {

/// Prints a line on standard output, above the bar where one is drawn.
void print_line(std::string_view text);

class ProgressBar final : public Callback {
 public:
  ProgressBar();

  void on_train_start(TrainContext& context) override;
  void on_train_epoch_start(TrainContext& context) override;
  void on_train_batch_end(StepContext& step, const TrainOutput& output) override;
  void on_train_end(TrainContext& context) override;
  void on_validation_end(TrainContext& context) override;
  void on_test_end(TrainContext& context) override;
  void on_exception(TrainContext& context, const std::exception& error) override;

 private:
  using Clock = std::chrono::steady_clock;

  void draw(const StepContext& step, Clock::time_point now);
  void report_line(const StepContext& step, Clock::time_point now);
  void finish_epoch(const TrainContext& context);
  std::vector<std::string> columns(const Metrics& metrics) const;

  const bool on_terminal_;
  Clock::time_point epoch_start_;
  Clock::time_point next_update_;
  std::int64_t epoch_ = -1;  // the one whose row is due; none when negative
  std::vector<std::string> table_columns_;
};

}  // namespace lockstep::detail
