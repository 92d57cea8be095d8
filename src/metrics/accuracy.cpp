#include <lockstep/metrics/accuracy.h>

#include <ATen/ATen.h>

#include "metrics/inputs.h"

namespace lockstep::metrics {

Accuracy::Accuracy(const ClassificationTask& task, const AccuracyOptions& options)
    : StatScores("Accuracy", task, options.average) {}

at::Tensor Accuracy::score(const StatCounts& counts) const {
  const auto there = counts.tp + counts.fn;
  // One of many classes: a true negative for all classes but one would be counted as right each time.
  if (std::holds_alternative<Multiclass>(task())) return detail::safe_divide(counts.tp, there);
  return detail::safe_divide(counts.tp + counts.tn, there + counts.tn + counts.fp);
}

}  // namespace lockstep::metrics
