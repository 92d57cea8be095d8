// ProgressBar: the progress of a run in a terminal; the base of all progress bars, and of your own.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/base/option_visitor.h>
#include <lockstep/train/hooks.h>

namespace lockstep {

/// How a progress bar looks.
struct ProgressBarOptions {
  int refresh_rate = 1;  ///< batches from one update to the next; 0: there is no bar
  bool leave = false;    ///< the bar of an epoch that is over stays, above the epoch's row
};

LOCKSTEP_API void describe(OptionVisitor& visitor, ProgressBarOptions& options);

/// A pass over data, as a bar shows it.
struct ProgressPass {
  std::string description = {};                ///< "Epoch 3", "Validation", "Sanity Checking", ...
  std::int64_t done = 0;                       ///< batches
  std::optional<std::int64_t> total = {};      ///< none where only the end of the data tells
  std::chrono::duration<double> elapsed = {};  ///< since its start
};

/// Shows, on rank 0, the current pass: on a terminal as lines that are redrawn at most ten times a second,
/// elsewhere as a plain line every ten seconds. Prints a row of metrics per epoch, and a table of the results
/// of validate and test. A Trainer has one of them, a TQDMProgressBar unless another is given; with
/// enable_progress_bar = false it has none.
///
/// For a bar of your own override lines(). Lightning's ProgressBar.
class LOCKSTEP_API ProgressBar : public Callback {
 public:
  /// @throws ConfigError for a negative refresh_rate
  explicit ProgressBar(ProgressBarOptions options = {});

  /// What it was made with.
  const ProgressBarOptions& options() const { return options_; }
  /// Whether it shows anything; a program may change that between and within runs.
  bool is_enabled() const { return is_enabled_; }
  /// Shows it again.
  void enable() { is_enabled_ = true; }
  /// Hides it.
  void disable();

  void on_sanity_check_start(TrainContext& context) override;
  void on_sanity_check_end(TrainContext& context) override;
  void on_train_start(TrainContext& context) override;
  void on_train_epoch_start(TrainContext& context) override;
  void on_train_batch_end(StepContext& step, const TrainOutput& output) override;
  void on_train_end(TrainContext& context) override;
  void on_validation_start(TrainContext& context) override;
  void on_validation_batch_end(StepContext& step) override;
  void on_validation_end(TrainContext& context) override;
  void on_test_start(TrainContext& context) override;
  void on_test_batch_end(StepContext& step) override;
  void on_test_end(TrainContext& context) override;
  void on_predict_start(TrainContext& context) override;
  void on_predict_batch_end(StepContext& step, const at::Tensor& prediction) override;
  void on_predict_end(TrainContext& context) override;
  void on_exception(TrainContext& context, const std::exception& error) override;

 protected:
  /// The lines to draw on a terminal of so many columns. `passes` are those that run, the innermost last:
  /// validation within training, for one. What is longer is cut; colours are ANSI sequences.
  virtual std::vector<std::string> lines(std::span<const ProgressPass> passes, const Metrics& metrics,
                                         std::size_t columns) const = 0;

  /// What is shown beside the bar: by default what was logged with prog_bar.
  virtual Metrics metrics(const TrainContext& context) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Running {
    ProgressPass pass;
    Clock::time_point start;
  };

  bool is_shown(const TrainContext& context) const;
  void begin(std::optional<Running>& running, std::string description);
  void begin_epoch(const TrainContext& context);
  void begin_evaluation(const TrainContext& context, std::string description);
  void advance(Running& running, const StepContext& step, std::int64_t total);
  void advance_evaluation(const StepContext& step);
  void end_evaluation(const TrainContext& context, const char* title);
  void update(const TrainContext& context);
  std::vector<ProgressPass> passes() const;
  void finish_epoch(const TrainContext& context);

  ProgressBarOptions options_;
  bool is_enabled_ = true;
  std::optional<Running> training_;
  std::optional<Running> evaluation_;
  std::int64_t epoch_ = 0;  // of training_
  Clock::time_point next_update_;
  std::vector<std::string> table_columns_;
};

/// The plain bar: one line, of the pass that runs. Named as Lightning's, whose lines are tqdm's.
class LOCKSTEP_API TQDMProgressBar final : public ProgressBar {
 public:
  using ProgressBar::ProgressBar;

 protected:
  std::vector<std::string> lines(std::span<const ProgressPass> passes, const Metrics& metrics,
                                 std::size_t columns) const override;
};

/// A line for each pass that runs and one for the metrics, in colours unless NO_COLOR is set. Elsewhere than
/// on a terminal it is the plain bar. Named as Lightning's, whose lines are drawn by rich.
class LOCKSTEP_API RichProgressBar final : public ProgressBar {
 public:
  using ProgressBar::ProgressBar;

 protected:
  std::vector<std::string> lines(std::span<const ProgressPass> passes, const Metrics& metrics,
                                 std::size_t columns) const override;
};

}  // namespace lockstep
