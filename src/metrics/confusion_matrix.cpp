#include <lockstep/metrics/confusion_matrix.h>

#include <ATen/ATen.h>

#include "metrics/inputs.h"
#include "metrics/stat_scores.h"

namespace lockstep::metrics {
namespace {

at::Tensor no_counts_for(const ClassificationTask& task) {
  if (std::holds_alternative<Multilabel>(task)) return at::zeros({detail::width_of(task), 2, 2}, at::kLong);
  const auto classes = std::holds_alternative<Binary>(task) ? 2 : detail::width_of(task);
  return at::zeros({classes, classes}, at::kLong);
}

}  // namespace

ConfusionMatrix::ConfusionMatrix(const ClassificationTask& task, const ConfusionMatrixOptions& options)
    : PredictionMetric("ConfusionMatrix"),
      task_(detail::checked_task_without_top_k(name(), task)),
      normalize_(options.normalize),
      confmat_(add_state("confmat", no_counts_for(task), StateReduction::kSum)) {}

at::Tensor ConfusionMatrix::compute() const {
  const auto counts = value(confmat_);
  switch (normalize_) {
    case Normalize::kTrue:
      return detail::safe_divide(counts, counts.sum({-1}, /*keepdim=*/true));
    case Normalize::kPred:
      return detail::safe_divide(counts, counts.sum({-2}, /*keepdim=*/true));
    case Normalize::kAll:
      return detail::safe_divide(counts, counts.sum({-2, -1}, /*keepdim=*/true));
    default:
      return counts;
  }
}

bool ConfusionMatrix::has_states_of(const PredictionMetric& other) const {
  const auto* matrix = dynamic_cast<const ConfusionMatrix*>(&other);
  return matrix && matrix->task_ == task_;
}

std::vector<at::Tensor> ConfusionMatrix::batch_states(const at::Tensor& preds,
                                                      const at::Tensor& target) const {
  return {detail::confusion_counts(name(), task_, preds, target)};
}

}  // namespace lockstep::metrics
