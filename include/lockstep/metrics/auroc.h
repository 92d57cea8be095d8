// Auroc: the area under the receiver operating characteristic.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/metrics/classification_task.h>
#include <lockstep/metrics/metric.h>

namespace lockstep::metrics {

/// Where the curve is evaluated: at every score that occurs (keeps all scores); at that many thresholds from
/// 0 to 1 (2 or more), or at these, ascending in [0, 1] (keeps counts only).
using Thresholds = std::variant<std::monostate, std::int64_t, std::vector<double>>;

/// Options of Auroc.
struct AurocOptions {
  Average average =
      Average::kMacro;  ///< over classes, one against the rest, or labels; kMicro: Multilabel only
  std::optional<double> max_fpr = {};  ///< Binary: the area up to there, in (0, 1], standardised (McClish)
  Thresholds thresholds = {};          ///< default: exact
};

/// The probability that a positive sample scores higher than a negative one. preds are scores; a batch of
/// Multiclass with one outside of [0, 1] are logits, and go through a softmax. The task's threshold is of no
/// account. NaN without samples where all scores are kept, else 0.
class LOCKSTEP_API Auroc final : public PredictionMetric {
 public:
  /// @throws ConfigError for a field out of range, and for a top_k
  explicit Auroc(const ClassificationTask& task, const AurocOptions& options = {});

  /// One value, or one per class for Average::kNone; float64.
  at::Tensor compute() const override;
  bool has_states_of(const PredictionMetric& other) const override;

 private:
  std::vector<at::Tensor> batch_states(const at::Tensor& preds, const at::Tensor& target) const override;
  at::Tensor compute_exact() const;
  at::Tensor compute_binned() const;

  ClassificationTask task_;
  AurocOptions options_;
  at::Tensor thresholds_;  // float32, ascending; none: exact
  StateId preds_{}, target_{}, histogram_{};
};

}  // namespace lockstep::metrics
