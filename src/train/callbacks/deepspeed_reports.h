// Reports of a run that DeepSpeed's configuration asks for: progress, times, memory, collectives.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/comm/collective_observer.h>
#include <lockstep/deepspeed/config.h>
#include <lockstep/deepspeed/side_sections.h>
#include <lockstep/loggers/logger.h>
#include <lockstep/train/hooks.h>

#include "train/callbacks/flops_report.h"

namespace lockstep {
class GradScaler;
}

namespace lockstep::detail {

/// steps_per_print: a line with the step, the steps that were left out, lr and momentum, and one with samples
/// per second (timers.throughput). wall_clock_breakdown: times of forward, backward and step. tensorboard,
/// csv_monitor: lr, loss scale and those times, over the samples of all ranks. flops_profiler: see
/// FlopsReport. dump_state: the settings, as the run begins. In DeepSpeed's words; on rank 0.
class DeepSpeedReports final : public Callback {
 public:
  /// Whether `config` asks for any of it.
  static bool are_wanted(const DeepSpeedConfig& config);

  /// `scaler` gives that of the run, or null.
  DeepSpeedReports(const DeepSpeedConfig& config, std::function<const GradScaler*()> scaler);

  void on_train_start(TrainContext& context) override;
  void on_train_batch_start(StepContext& step) override;
  void on_before_backward(StepContext& step, const at::Tensor& loss) override;
  void on_after_backward(StepContext& step) override;
  void on_before_optimizer_step(StepContext& step) override;
  void on_train_batch_end(StepContext& step, const TrainOutput& output) override;
  void on_train_end(TrainContext& context) override;
  void on_exception(TrainContext& context, const std::exception& error) override;

 private:
  using Clock = PhaseClock::Clock;
  using Times = PhaseClock::Times;

  // Samples per second over the steps after the first two, as DeepSpeed counts them.
  struct Throughput {
    std::int64_t steps = 0;
    Clock::duration total = {};
    Clock::duration current = {};
  };

  void end_step(StepContext& step, std::int64_t steps_before);
  void print_progress(const StepContext& step) const;
  void print_throughput(const StepContext& step) const;
  void print_times(const TrainContext& context, const Times& times, const char* suffix) const;
  void write_metrics(const StepContext& step);
  void finalize(const char* status);
  std::int64_t samples_of_step(const StepContext& step) const;

  DeepSpeedConfig config_;
  std::function<const GradScaler*()> scaler_;
  std::vector<std::unique_ptr<Logger>> monitors_;
  PhaseClock clock_;
  FlopsReport flops_;
  Times global_ = {};  // of the step
  Throughput throughput_;
  std::int64_t batch_size_ = 0;  // of the loader: the most that a batch had
  std::int64_t last_step_ = 0;
};

/// DeepSpeed's memory_breakdown: the memory of this process, current (MA) and peak (Max_MA), and of the
/// machine, around forward, backward and step. A line each, in DeepSpeed's words.
class MemoryBreakdown final : public Callback {
 public:
  void on_train_batch_start(StepContext& step) override;
  void on_before_backward(StepContext& step, const at::Tensor& loss) override;
  void on_after_backward(StepContext& step) override;
  void on_before_optimizer_step(StepContext& step) override;
  void on_train_batch_end(StepContext& step, const TrainOutput& output) override;

 private:
  bool is_in_step_ = false;
};

/// DeepSpeed's comms_logger: the collectives of a run, on rank 0. With `verbose` a line for each collective
/// at the end of its batch; at the end of training a table of all, by name and size. `prof_ops` are the
/// collectives that count without `prof_all`, by this library's names. Words and units are DeepSpeed's, and
/// bandwidths are those of all ranks.
class CommsLog final : public Callback, private CollectiveObserver {
 public:
  explicit CommsLog(deepspeed::CommsLogger options);

  void on_train_start(TrainContext& context) override;
  void on_train_batch_end(StepContext& step, const TrainOutput& output) override;
  void on_train_end(TrainContext& context) override;
  void on_exception(TrainContext& context, const std::exception& error) override;

 private:
  struct Call {
    std::size_t kind;
    std::int64_t bytes;
    double milliseconds;
  };
  struct Row {
    std::int64_t count = 0;
    double total_ms = 0;
    std::vector<float> latest_ms = {};  // for means without extremes
  };

  void on_collective(const CollectiveEvent& event) noexcept override;
  void take(const TrainContext& context);
  void print_table(const TrainContext& context) const;

  deepspeed::CommsLogger options_;
  std::vector<bool> counts_;  // by kind
  std::mutex mutex_;          // guards what follows
  std::vector<Call> calls_;
  std::map<std::string, std::map<std::int64_t, Row>> rows_;  // by name and bytes; of the training's thread
  std::optional<ObservedCollectives> scope_;                 // last: what it calls is complete
};

}  // namespace lockstep::detail
