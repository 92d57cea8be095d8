// The callbacks that run the Tuner's searches at the start of fit.
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/train/callbacks/batch_size_finder.h>
#include <lockstep/train/callbacks/learning_rate_finder.h>

#include "train/tuner/searches.h"

namespace lockstep {
namespace {

// A context that shows the run behind it.
class SearchContext : public TrainContext {
 public:
  explicit SearchContext(const TrainContext& context) : TrainContext(context) {}
  detail::TrainerState& state() const { return *state_; }
};

bool goes_on(const detail::CheckpointSession& checkpoints, const char* what) {
  if (!checkpoints.resume_point) return false;
  log_info("This run goes on from a checkpoint: no search for " + std::string(what) + ".");
  return true;
}

}  // namespace

BatchSizeFinder::BatchSizeFinder(ScaleBatchSizeOptions options) : options_(std::move(options)) {
  if (options_.method == Stage::kFit) return;
  throw ConfigError("tuner", {.what = "BatchSizeFinder",
                              .expected = "method kFit: the callback searches at the start of fit",
                              .got = std::string(stage_name(options_.method)),
                              .hint = "use Tuner::scale_batch_size()"});
}

void BatchSizeFinder::on_fit_start(TrainContext& context) {
  auto& state = SearchContext(context).state();
  if (!goes_on(state.checkpoints, "the size of batches"))
    optimal_batch_size_ = find_batch_size(state, options_);
}

LearningRateFinder::LearningRateFinder(LrFindOptions options) : options_(std::move(options)) {}

void LearningRateFinder::on_fit_start(TrainContext& context) {
  auto& state = SearchContext(context).state();
  if (!goes_on(state.checkpoints, "a learning rate")) optimal_lr_ = find_learning_rate(state, options_);
}

}  // namespace lockstep
