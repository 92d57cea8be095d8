// Precision, Recall and their mean, FBeta.
#pragma once

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/metrics/stat_scores.h>

namespace lockstep::metrics {

/// Options of Precision and Recall.
struct PrecisionRecallOptions {
  Average average = Average::kMicro;  ///< over classes or labels
  double zero_division = 0;           ///< the score where it would be 0 / 0: 0 or 1
};

/// Options of FBeta.
struct FBetaOptions {
  double beta = 1;                    ///< > 0; recall weighs beta times as much as precision
  Average average = Average::kMicro;  ///< over classes or labels
  double zero_division = 0;           ///< the score where it would be 0 / 0: 0 or 1
};

/// tp / (tp + fp): how much of what was predicted is there.
class LOCKSTEP_API Precision final : public StatScores {
 public:
  /// @throws ConfigError for a field out of range
  explicit Precision(const ClassificationTask& task, const PrecisionRecallOptions& options = {});

 private:
  at::Tensor score(const StatCounts& counts) const override;
  double zero_division_;
};

/// tp / (tp + fn): how much of what is there was predicted.
class LOCKSTEP_API Recall final : public StatScores {
 public:
  /// @throws ConfigError for a field out of range
  explicit Recall(const ClassificationTask& task, const PrecisionRecallOptions& options = {});

 private:
  at::Tensor score(const StatCounts& counts) const override;
  double zero_division_;
};

/// (1 + beta^2) tp / ((1 + beta^2) tp + beta^2 fn + fp): the weighted harmonic mean of precision and recall.
class LOCKSTEP_API FBeta final : public StatScores {
 public:
  /// @throws ConfigError for a field out of range
  explicit FBeta(const ClassificationTask& task, const FBetaOptions& options = {});

 private:
  at::Tensor score(const StatCounts& counts) const override;
  at::Tensor is_absent(const StatCounts& counts) const override;
  double beta_;
  double zero_division_;
};

/// FBeta with beta 1.
using F1 = FBeta;

}  // namespace lockstep::metrics
