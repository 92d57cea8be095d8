#include "train/callbacks/flops_report.h"

#include <utility>

#include <lockstep/base/atomic_file.h>
#include <lockstep/train/module.h>

#include "loggers/logger_files.h"

namespace lockstep::detail {

FlopsReport::FlopsReport(deepspeed::FlopsProfiler options) : options_(std::move(options)) {}

void FlopsReport::begin_run(std::int64_t done) {
  is_done_ = !options_.enabled || done > options_.profile_step;
}

void FlopsReport::begin(StepContext& step) {
  if (is_done_ || step.global_step() < options_.profile_step) return;
  batch_ = {.step = step.global_step() + 1, .world_size = step.world_size(), .batch_size = step.batch_size()};
  counter_.emplace(step.module());
}

void FlopsReport::end_forward() {
  if (counter_) batch_.modules = counter_->modules();
  counter_.reset();
}

void FlopsReport::end(const StepContext& step, const PhaseClock::Times& times) {
  counter_.reset();
  if (is_done_ || batch_.modules.empty() || step.global_step() < batch_.step) return;
  is_done_ = true;
  give(step, times);
}

void FlopsReport::give(const TrainContext& context, const PhaseClock::Times& times) {
  batch_.forward = times.of(StepPhase::kForward);
  batch_.backward = times.of(StepPhase::kBackward);
  batch_.update = times.of(StepPhase::kStep);
  const auto page = flops_page(std::exchange(batch_, {}), options_);
  if (!options_.output_file) return context.print(page);
  const auto& file = *options_.output_file;
  write_or_warn(file, [&] {
    if (file.has_parent_path()) create_folders(file.parent_path());
    write_file_atomically(file, page + "\n");
  });
}

}  // namespace lockstep::detail
