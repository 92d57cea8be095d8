#include <lockstep/metrics/precision_recall.h>

#include <cmath>

#include <ATen/ATen.h>

#include <lockstep/metrics/accuracy.h>

#include "metrics/inputs.h"

namespace lockstep::metrics {
namespace {

double checked_zero_division(const std::string& owner, double value) {
  detail::require_option(value == 0 || value == 1, owner + ": zero_division", value, "0 or 1");
  return value;
}

double checked_beta(double beta) {
  detail::require_option(std::isfinite(beta) && beta > 0, "FBeta: beta", beta, "a number > 0");
  return beta;
}

}  // namespace

Precision::Precision(const ClassificationTask& task, const PrecisionRecallOptions& options)
    : StatScores("Precision", task, options.average),
      zero_division_(checked_zero_division(name(), options.zero_division)) {}

at::Tensor Precision::score(const StatCounts& counts) const {
  return detail::safe_divide(counts.tp, counts.tp + counts.fp, zero_division_);
}

Recall::Recall(const ClassificationTask& task, const PrecisionRecallOptions& options)
    : StatScores("Recall", task, options.average),
      zero_division_(checked_zero_division(name(), options.zero_division)) {}

at::Tensor Recall::score(const StatCounts& counts) const {
  return detail::safe_divide(counts.tp, counts.tp + counts.fn, zero_division_);
}

FBeta::FBeta(const ClassificationTask& task, const FBetaOptions& options)
    : StatScores("FBeta", task, options.average),
      beta_(checked_beta(options.beta)),
      zero_division_(checked_zero_division(name(), options.zero_division)) {}

at::Tensor FBeta::score(const StatCounts& counts) const {
  const double square = beta_ * beta_;
  const auto weighted_tp = counts.tp.to(at::kDouble) * (1 + square);
  const auto weighted_errors = counts.fn.to(at::kDouble) * square + counts.fp;
  return detail::safe_divide(weighted_tp, weighted_tp + weighted_errors, zero_division_);
}

at::Tensor FBeta::is_absent(const StatCounts& counts) const {
  return (counts.tp + counts.fp + counts.fn).eq(0);
}


Accuracy::Accuracy(const ClassificationTask& task, const AccuracyOptions& options)
    : StatScores("Accuracy", task, options.average) {}

at::Tensor Accuracy::score(const StatCounts& counts) const {
  const auto there = counts.tp + counts.fn;
  // One of many classes: a true negative for all classes but one would be counted as right each time.
  if (std::holds_alternative<Multiclass>(task())) return detail::safe_divide(counts.tp, there);
  return detail::safe_divide(counts.tp + counts.tn, there + counts.tn + counts.fp);
}

}  // namespace lockstep::metrics
