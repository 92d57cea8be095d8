// PredictionMetric: metrics that compare predictions with targets.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/metrics/metric.h>

namespace lockstep::metrics {

/// Base of metrics over pairs of tensors.
class LOCKSTEP_API PredictionMetric : public Metric {
 public:
  /// Takes up a batch; each metric says which shapes and dtypes. Batches may differ in size, and be empty.
  /// Tensors on any device; no graph is kept.
  /// @throws DataError for tensors that do not fit, or hold values out of range; nothing has changed then
  void update(const at::Tensor& preds, const at::Tensor& target);

  /// As update(), and gives the value for that batch alone. Not Collective.
  at::Tensor forward(const at::Tensor& preds, const at::Tensor& target);

  /// Whether the same batches bring `other` to the same states. A MetricCollection then keeps them once.
  virtual bool has_states_of(const PredictionMetric& other) const;

 protected:
  using Metric::Metric;

 private:
  friend class MetricCollection;

  /// What a batch brings to each state, in the order of their declaration. Called without gradients.
  virtual std::vector<at::Tensor> batch_states(const at::Tensor& preds, const at::Tensor& target) const = 0;
};

}  // namespace lockstep::metrics
