// The receiver operating characteristic: the rates of true and false positives as the threshold falls.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

namespace lockstep::metrics::detail {

/// Points of a curve, float64, ascending.
struct RocCurve {
  at::Tensor fpr;  ///< false positives / negatives; all 0 without negatives
  at::Tensor tpr;  ///< true positives / positives; all 0 without positives
};

/// A point for every score that occurs, and (0, 0). `scores` and `is_positive`: [n], n > 0.
RocCurve roc_of_scores(const at::Tensor& scores, const at::Tensor& is_positive);

/// How many elements reach how many of `thresholds`, int64 [columns, 2, thresholds + 1]: of negatives in row
/// 0, of positives in row 1. `scores` and `is_positive`: [n, columns]; only those where `is_counted`, if
/// defined.
at::Tensor threshold_histogram(const at::Tensor& scores, const at::Tensor& is_positive,
                               const at::Tensor& is_counted, const at::Tensor& thresholds);

/// A point for every threshold, of one column of that histogram, [2, thresholds + 1].
RocCurve roc_of_histogram(const at::Tensor& histogram);

/// The area under the curve by trapezoids, []; up to `max_fpr` where given, scaled so that chance gives 0.5.
/// McClish, Medical Decision Making 9(3), 1989.
at::Tensor area(const RocCurve& curve, const std::optional<double>& max_fpr);

}  // namespace lockstep::metrics::detail
