// ConfusionMatrix: which class is taken for which.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/metrics/classification_task.h>
#include <lockstep/metrics/metric.h>

namespace lockstep::metrics {

/// What the numbers of a confusion matrix are divided by.
enum class Normalize {
  kNone,  ///< nothing: counts, int64
  kTrue,  ///< the number of elements of the target class: rows sum to 1
  kPred,  ///< the number of elements of the predicted class: columns sum to 1
  kAll    ///< the number of all elements
};

/// Options of ConfusionMatrix.
struct ConfusionMatrixOptions {
  Normalize normalize = Normalize::kNone;  ///< 0 where it would be 0 / 0
};

/// Element [i, j]: how often j was predicted where i is the target. [num_classes, num_classes], [2, 2] for
/// Binary, [num_labels, 2, 2] for Multilabel.
class LOCKSTEP_API ConfusionMatrix final : public PredictionMetric {
 public:
  /// @throws ConfigError for a task whose fields are out of range, and for a top_k
  explicit ConfusionMatrix(const ClassificationTask& task, const ConfusionMatrixOptions& options = {});

  at::Tensor compute() const override;
  bool has_states_of(const PredictionMetric& other) const override;

 private:
  std::vector<at::Tensor> batch_states(const at::Tensor& preds, const at::Tensor& target) const override;

  ClassificationTask task_;
  Normalize normalize_;
  StateId confmat_;
};

}  // namespace lockstep::metrics
