#include "train/tuner/batch_size_search.h"

#include <algorithm>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

namespace lockstep::detail {
namespace {

class Search {
 public:
  explicit Search(const ScaleBatchSizeOptions& options)
      : options_(options), size_(std::min(options.init_val, options.max_val)) {}

  std::int64_t run(const std::function<TrialOutcome(std::int64_t)>& run_trial) {
    if (options_.max_trials == 0) return size_;
    while (learn(run_trial(size_))) advance();
    if (fits_ == 0) refuse();
    return fits_;
  }

 private:
  // Whether there is a size left to try.
  bool learn(TrialOutcome outcome) {
    if (outcome == TrialOutcome::kOutOfMemory) {
      fails_ = size_;
    } else {
      fits_ = size_;
    }
    if (outcome == TrialOutcome::kHoldsAll) {
      log_info("The batch size " + std::to_string(size_) +
               " is greater or equal than the length of your dataset.");
      return false;
    }
    if (fits_ == options_.max_val) {
      log_info("Reached the maximum batch size limit of " + std::to_string(fits_) + ". Stopping search.");
      return false;
    }
    if (options_.mode == BatchSizeMode::kPower || fits_ == size_) ++trials_;
    return !is_over();
  }

  // Without any size that fits there is nothing to end with, however many were tried.
  bool is_over() const {
    if (fits_ == 0) return *fails_ == 1;
    if (trials_ >= options_.max_trials) return true;
    if (!fails_) return false;
    return options_.mode == BatchSizeMode::kPower || *fails_ - fits_ <= 1;
  }

  void advance() {
    const auto tried = size_;
    size_ = fails_ ? (fits_ + *fails_) / 2 : std::min(2 * fits_, options_.max_val);
    log_info("Batch size " + std::to_string(tried) + (fits_ == tried ? " succeeded" : " failed") +
             ", trying batch size " + std::to_string(size_));
  }

  [[noreturn]] static void refuse() {
    throw ConfigError("tuner", {.what = "no batch size fits",
                                .expected = "memory for a batch of one sample",
                                .got = "out of memory with 1",
                                .hint = "the model, or one sample, is too large for this machine"});
  }

  const ScaleBatchSizeOptions& options_;
  std::int64_t size_;
  std::int64_t fits_ = 0;              // the largest that does; 0: none yet
  std::optional<std::int64_t> fails_;  // the smallest that does
  int trials_ = 0;
};

}  // namespace

std::int64_t search_batch_size(const ScaleBatchSizeOptions& options,
                               const std::function<TrialOutcome(std::int64_t)>& run_trial) {
  const auto size = Search(options).run(run_trial);
  if (options.mode == BatchSizeMode::kPower) return size;
  const auto kept = static_cast<double>(size) * (1 - options.margin);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(kept));
}

}  // namespace lockstep::detail
