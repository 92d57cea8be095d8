// Metrics of classification: accuracy, precision, recall and F-beta, the confusion matrix, and the area under
// the receiver operating characteristic.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
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

  /// What is classified.
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

/// Options of Accuracy.
struct AccuracyOptions {
  EnumOption<Average> average = Average::kMicro;  ///< over classes or labels
};

/// The share of right predictions: of elements for Binary and Multilabel, of samples for Multiclass (per
/// class, of the samples of that class); as torchmetrics' Accuracy(task=...). 0 without samples.
class LOCKSTEP_API Accuracy final : public StatScores {
 public:
  /// @throws ConfigError for a task whose fields are out of range
  explicit Accuracy(const ClassificationTask& task, const AccuracyOptions& options = {});

 private:
  at::Tensor score(const StatCounts& counts) const override;
};

/// Options of Precision and Recall.
struct PrecisionRecallOptions {
  EnumOption<Average> average = Average::kMicro;  ///< over classes or labels
  double zero_division = 0;                       ///< the score where it would be 0 / 0: 0 or 1
};

/// Options of FBeta.
struct FBetaOptions {
  double beta = 1;                                ///< > 0; recall weighs beta times as much as precision
  EnumOption<Average> average = Average::kMicro;  ///< over classes or labels
  double zero_division = 0;                       ///< the score where it would be 0 / 0: 0 or 1
};

/// tp / (tp + fp): how much of what was predicted is there.
class LOCKSTEP_API Precision final : public StatScores {
 public:
  /// @throws ConfigError for a field out of range
  explicit Precision(const ClassificationTask& task, const PrecisionRecallOptions& options = {});

 private:
  at::Tensor score(const StatCounts& counts) const override;
  double zero_division_;
};

/// tp / (tp + fn): how much of what is there was predicted.
class LOCKSTEP_API Recall final : public StatScores {
 public:
  /// @throws ConfigError for a field out of range
  explicit Recall(const ClassificationTask& task, const PrecisionRecallOptions& options = {});

 private:
  at::Tensor score(const StatCounts& counts) const override;
  double zero_division_;
};

/// (1 + beta^2) tp / ((1 + beta^2) tp + beta^2 fn + fp): the weighted harmonic mean of precision and recall.
class LOCKSTEP_API FBeta final : public StatScores {
 public:
  /// @throws ConfigError for a field out of range
  explicit FBeta(const ClassificationTask& task, const FBetaOptions& options = {});

 private:
  at::Tensor score(const StatCounts& counts) const override;
  at::Tensor is_absent(const StatCounts& counts) const override;
  double beta_;
  double zero_division_;
};

/// FBeta with beta 1.
using F1 = FBeta;

/// What the numbers of a confusion matrix are divided by.
enum class Normalize {
  kNone,  ///< nothing: counts, int64
  kTrue,  ///< the number of elements of the target class: rows sum to 1
  kPred,  ///< the number of elements of the predicted class: columns sum to 1
  kAll    ///< the number of all elements
};

LOCKSTEP_API std::span<const OptionName<Normalize>> option_names(Normalize);

/// Options of ConfusionMatrix.
struct ConfusionMatrixOptions {
  EnumOption<Normalize> normalize = Normalize::kNone;  ///< 0 where it would be 0 / 0
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

/// Where the curve is evaluated: at every score that occurs (keeps all scores); at that many thresholds from
/// 0 to 1 (2 or more), or at these, ascending in [0, 1] (keeps counts only).
using Thresholds = std::variant<std::monostate, std::int64_t, std::vector<double>>;

/// Options of Auroc.
struct AurocOptions {
  EnumOption<Average> average =
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
