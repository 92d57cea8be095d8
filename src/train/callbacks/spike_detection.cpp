#include <lockstep/train/callbacks/spike_detection.h>

#include <utility>

#include <lockstep/strategy/strategy.h>

namespace lockstep {

SpikeDetection::SpikeDetection(SpikeDetectionOptions options)
    : options_(std::move(options)), detector_(options_) {}

// A new fit starts without losses; the state of a resumed one is loaded later.
void SpikeDetection::setup(TrainContext& context) {
  if (context.stage() != Stage::kFit) return;
  auto options = options_;
  if (options.exclude_batches_path.empty()) options.exclude_batches_path = context.run_dir();
  detector_ = SpikeDetector(options);
}

void SpikeDetection::on_train_batch_end(StepContext& step, const TrainOutput& output) {
  detector_.observe(output.loss, step.batch_idx(), step.strategy().communicator());
}

}  // namespace lockstep
