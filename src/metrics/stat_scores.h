// Counts of what was predicted for what.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include <lockstep/metrics/classification_task.h>
#include <lockstep/metrics/stat_scores.h>

namespace lockstep::metrics::detail {

/// How often each class was predicted for each target, int64: [2, 2], [num_classes, num_classes] or
/// [num_labels, 2, 2]; [target, predicted]. @throws DataError naming `owner` for inputs that do not fit
at::Tensor confusion_counts(const std::string& owner, const ClassificationTask& task, const at::Tensor& preds,
                            const at::Tensor& target);

/// Positives and negatives of each class or label. @throws DataError as confusion_counts
StatCounts stat_counts(const std::string& owner, const ClassificationTask& task, const at::Tensor& preds,
                       const at::Tensor& target);

}  // namespace lockstep::metrics::detail
