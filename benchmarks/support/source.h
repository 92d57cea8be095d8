// A source of batches that keeps time, so that every loop is measured in the same way from outside.
#pragma once

#include <cstdint>
#include <span>

#include <lockstep/data/dataset.h>

#include "results.h"

namespace bench {

inline constexpr std::int64_t kBatchSize = 32;
inline constexpr std::int64_t kWarmupSteps = 200;

/// Gives out one ready-made batch and notes when the timed steps began and ended: peers/common.py's Source.
/// It is also a data set of batches, for loaders without worker threads.
class Source final : public lockstep::Dataset<lockstep::Example> {
 public:
  Source(lockstep::Example batch, std::int64_t steps, std::int64_t warmup = kWarmupSteps)
      : batch_(std::move(batch)), steps_(steps), warmup_(warmup) {}

  std::int64_t batches() const { return warmup_ + steps_ + 1; }

  /// The batch of step `index`, which must be asked for when the step before is done.
  const lockstep::Example& take(std::int64_t index) const {
    if (index == warmup_) first_ns_ = now_ns();
    if (index == warmup_ + steps_) last_ns_ = now_ns();
    return batch_;
  }

  std::int64_t size() const override { return batches() * kBatchSize; }
  lockstep::Example get_batch(std::span<const std::int64_t> indices) const override {
    return take(indices.front() / kBatchSize);
  }

  double ns_per_step() const {
    return static_cast<double>(last_ns_ - first_ns_) / static_cast<double>(steps_);
  }

 private:
  lockstep::Example batch_;
  std::int64_t steps_;
  std::int64_t warmup_;
  mutable std::int64_t first_ns_ = 0;
  mutable std::int64_t last_ns_ = 0;
};

}  // namespace bench
