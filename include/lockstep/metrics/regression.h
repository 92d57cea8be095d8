// Errors of predicted numbers.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/metrics/metric.h>

namespace lockstep::metrics {

/// Options of MeanSquaredError.
struct MeanSquaredErrorOptions {
  bool squared = true;           ///< false: its root, RMSE
  std::int64_t num_outputs = 1;  ///< at least 1; above 1: one value for each column of [N, num_outputs]
};

/// Options of MeanAbsoluteError.
struct MeanAbsoluteErrorOptions {
  std::int64_t num_outputs = 1;  ///< at least 1; above 1: one value for each column of [N, num_outputs]
};

/// The mean of (preds - target)^2 over all elements, or over rows. preds and target: equal shapes, real.
/// float64, summed in float64; NaN without samples.
class LOCKSTEP_API MeanSquaredError final : public PredictionMetric {
 public:
  /// @throws ConfigError for a field out of range
  explicit MeanSquaredError(const MeanSquaredErrorOptions& options = {});

  at::Tensor compute() const override;
  bool has_states_of(const PredictionMetric& other) const override;

 private:
  std::vector<at::Tensor> batch_states(const at::Tensor& preds, const at::Tensor& target) const override;

  MeanSquaredErrorOptions options_;
  StateId sum_squared_error_, total_;
};

/// The mean of |preds - target| over all elements, or over rows; else as MeanSquaredError.
class LOCKSTEP_API MeanAbsoluteError final : public PredictionMetric {
 public:
  /// @throws ConfigError for a field out of range
  explicit MeanAbsoluteError(const MeanAbsoluteErrorOptions& options = {});

  at::Tensor compute() const override;
  bool has_states_of(const PredictionMetric& other) const override;

 private:
  std::vector<at::Tensor> batch_states(const at::Tensor& preds, const at::Tensor& target) const override;

  MeanAbsoluteErrorOptions options_;
  StateId sum_abs_error_, total_;
};

}  // namespace lockstep::metrics
