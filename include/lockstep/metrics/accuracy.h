// Accuracy: how much of what was predicted is right.
#pragma once

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/metrics/stat_scores.h>

namespace lockstep::metrics {

/// Options of Accuracy.
struct AccuracyOptions {
  Average average = Average::kMicro;  ///< over classes or labels
};

/// The share of right predictions: of elements for Binary and Multilabel, of samples for Multiclass (per
/// class, of the samples of that class); as torchmetrics' Accuracy(task=...). 0 without samples.
class LOCKSTEP_API Accuracy final : public StatScores {
 public:
  /// @throws ConfigError for a task whose fields are out of range
  explicit Accuracy(const ClassificationTask& task, const AccuracyOptions& options = {});

 private:
  at::Tensor score(const StatCounts& counts) const override;
};

}  // namespace lockstep::metrics
