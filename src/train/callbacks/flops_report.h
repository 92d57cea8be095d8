// DeepSpeed's flops_profiler: what a step computes, and how fast.
#pragma once

#include <cstdint>
#include <optional>

#include <lockstep/deepspeed/side_sections.h>
#include <lockstep/fabric/flop_counter.h>
#include <lockstep/train/hooks.h>

#include "train/callbacks/flops_page.h"
#include "train/callbacks/phase_clock.h"

namespace lockstep::detail {

/// Once `profile_step` steps are done, the next one's last micro-batch is counted, and what it was goes to
/// `output_file` or is printed. A file that cannot be written is a warning. Does nothing unless enabled.
class FlopsReport {
 public:
  explicit FlopsReport(deepspeed::FlopsProfiler options);

  /// Training begins after `done` steps: where these are more, the step has been counted before.
  void begin_run(std::int64_t done);
  /// A micro-batch begins.
  void begin(StepContext& step);
  /// Its forward pass is over.
  void end_forward();
  /// It is over, and has taken `times`.
  void end(const StepContext& step, const PhaseClock::Times& times);
  /// No more is counted: the training ends.
  void stop() { counter_.reset(); }

 private:
  void give(const TrainContext& context, const PhaseClock::Times& times);

  deepspeed::FlopsProfiler options_;
  std::optional<FlopCounter> counter_;
  ProfiledBatch batch_;
  bool is_done_ = true;  // until training begins
};

}  // namespace lockstep::detail
