// StatScores: what the metrics that count true and false positives and negatives share.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/metrics/classification_task.h>
#include <lockstep/metrics/metric.h>

namespace lockstep::metrics {

/// Numbers of elements, int64: [num_classes] or [num_labels], of Binary [1]; summed over classes [].
struct StatCounts {
  at::Tensor tp;  ///< there, and predicted
  at::Tensor fp;  ///< predicted, but not there
  at::Tensor tn;  ///< neither
  at::Tensor fn;  ///< there, but not predicted
};

/// Base of Accuracy, Precision, Recall and FBeta: counts per class; a score of the counts; an average. Those
/// for the same task have the same states.
class LOCKSTEP_API StatScores : public PredictionMetric {
 public:
  /// One value, or one per class for Average::kNone; float64.
  at::Tensor compute() const override;
  bool has_states_of(const PredictionMetric& other) const override;

 protected:
  /// @throws ConfigError for a task whose fields are out of range
  StatScores(std::string name, const ClassificationTask& task, Average average);

  const ClassificationTask& task() const { return task_; }

 private:
  std::vector<at::Tensor> batch_states(const at::Tensor& preds, const at::Tensor& target) const override;
  /// Of each class.
  virtual at::Tensor score(const StatCounts& counts) const = 0;
  /// The classes that a macro average of Multiclass leaves out, bool.
  virtual at::Tensor is_absent(const StatCounts& counts) const;

  ClassificationTask task_;
  Average average_;
  StateId tp_, fp_, tn_, fn_;
};

}  // namespace lockstep::metrics
