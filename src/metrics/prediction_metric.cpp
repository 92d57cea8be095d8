#include <lockstep/metrics/prediction_metric.h>

#include <ATen/core/grad_mode.h>

namespace lockstep::metrics {

void PredictionMetric::update(const at::Tensor& preds, const at::Tensor& target) {
  const at::NoGradGuard no_grad;
  update_states(batch_states(preds, target));
}

at::Tensor PredictionMetric::forward(const at::Tensor& preds, const at::Tensor& target) {
  const at::NoGradGuard no_grad;
  return forward_states(batch_states(preds, target));
}

bool PredictionMetric::has_states_of(const PredictionMetric&) const { return false; }

}  // namespace lockstep::metrics
