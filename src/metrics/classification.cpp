// Metrics of classification that are made of counts: confusion matrix, accuracy, precision, recall and
// F-beta.
#include <lockstep/metrics/classification.h>

#include <cmath>
#include <string>
#include <type_traits>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/Tensor.h>
#include <lockstep/metrics/classification_task.h>

#include "metrics/inputs.h"

namespace lockstep::metrics::detail {
namespace {

// Of equal shapes, int64.
struct Labels {
  at::Tensor preds;
  at::Tensor target;
};

struct YesNo {
  double threshold;
  std::optional<std::int64_t> ignore_index;
};

// 0 and 1 of scores or classes.
at::Tensor decided(const std::string& owner, const at::Tensor& preds, const YesNo& rule) {
  if (preds.is_floating_point()) return probabilities(preds, Normalization::kSigmoid).gt(rule.threshold);
  check_classes(owner + ": preds", preds, 2, std::nullopt);
  return preds;
}

// [labels, 2, 2] of preds and target, [n, labels].
at::Tensor yes_no_counts(const std::string& owner, const at::Tensor& preds, const at::Tensor& target,
                         const YesNo& rule) {
  check_classes(owner + ": target", target, 2, rule.ignore_index);
  const auto labels = preds.size(1);
  const auto label = at::arange(labels, preds.options().dtype(at::kLong));
  const auto cell = label * 4 + target.to(at::kLong) * 2 + decided(owner, preds, rule).to(at::kLong);
  const auto cells = select_counted(cell, counted(target, rule.ignore_index)).flatten();
  return cells.bincount({}, labels * 4).view({labels, 2, 2});
}

at::Tensor cells_of(const std::string& owner, const Binary& task, const at::Tensor& preds,
                    const at::Tensor& target) {
  check_same_shape(owner, preds, target);
  return yes_no_counts(owner, preds.reshape({-1, 1}), target.reshape({-1, 1}),
                       {task.threshold, task.ignore_index});
}

// Before scores are found to be probabilities or not, as torchmetrics' confusion matrix does alone.
Labels without_ignored(const std::string& owner, const Binary& task, const at::Tensor& preds,
                       const at::Tensor& target) {
  check_same_shape(owner, preds, target);
  check_classes(owner + ": target", target, 2, task.ignore_index);
  const auto flat = target.flatten();
  const auto is_counted = counted(flat, task.ignore_index);
  return {select_counted(preds.flatten(), is_counted), select_counted(flat, is_counted)};
}

at::Tensor cells_of(const std::string& owner, const Multilabel& task, const at::Tensor& preds,
                    const at::Tensor& target) {
  check_labels_shape(owner, preds, target, task.num_labels);
  return yes_no_counts(owner, classes_last(preds), classes_last(target), {task.threshold, task.ignore_index});
}

// The class with the best score, or the target where it is among the best k.
at::Tensor best_class(const at::Tensor& scores, const at::Tensor& target, std::int64_t top_k) {
  if (top_k == 1) return scores.argmax(1);
  const auto best = std::get<1>(scores.topk(top_k, 1));
  return at::where(best.eq(target.unsqueeze(1)).any(1), target, best.select(1, 0));
}

Labels labels_of(const std::string& owner, const Multiclass& task, const at::Tensor& preds,
                 const at::Tensor& target) {
  const bool are_classes = preds.defined() && target.defined() && preds.dim() == target.dim() &&
                           !preds.is_floating_point() && task.top_k == 1;
  if (are_classes) {
    check_same_shape(owner, preds, target);
  } else {
    check_scores_shape(owner, preds, target, task.num_classes);
  }
  check_classes(owner + ": target", target, task.num_classes, task.ignore_index);
  const auto flat = target.flatten().to(at::kLong);
  const auto is_counted = counted(flat, task.ignore_index);
  const auto targets = select_counted(flat, is_counted);
  const auto rows = select_counted(are_classes ? preds.flatten() : classes_last(preds), is_counted);
  if (!are_classes) return {best_class(rows, targets, task.top_k), targets};
  check_classes(owner + ": preds", rows, task.num_classes, std::nullopt);
  return {rows.to(at::kLong), targets};
}

StatCounts counts_of_cells(const at::Tensor& cells) {
  const auto count = [&](int target, int predicted) { return cells.select(1, target).select(1, predicted); };
  return {.tp = count(1, 1), .fp = count(0, 1), .tn = count(0, 0), .fn = count(1, 0)};
}

// Without the matrix of all pairs of classes.
StatCounts counts_of_labels(const Labels& labels, std::int64_t num_classes) {
  const auto is_right = labels.preds.eq(labels.target);
  const auto tp = labels.target.masked_select(is_right).bincount({}, num_classes);
  const auto fp = labels.preds.bincount({}, num_classes) - tp;
  const auto fn = labels.target.bincount({}, num_classes) - tp;
  return {.tp = tp, .fp = fp, .tn = labels.target.numel() - tp - fp - fn, .fn = fn};
}

/// How often each class was predicted for each target, int64: [2, 2], [num_classes, num_classes] or
/// [num_labels, 2, 2]; [target, predicted]. @throws DataError naming `owner` for inputs that do not fit
at::Tensor confusion_counts(const std::string& owner, const ClassificationTask& task, const at::Tensor& preds,
                            const at::Tensor& target) {
  const auto* multiclass = std::get_if<Multiclass>(&task);
  if (const auto* multilabel = std::get_if<Multilabel>(&task))
    return cells_of(owner, *multilabel, preds, target);
  if (const auto* binary = std::get_if<Binary>(&task)) {
    const auto counted = without_ignored(owner, *binary, preds, target);
    return cells_of(owner, Binary{.threshold = binary->threshold}, counted.preds, counted.target)[0];
  }
  const auto classes = multiclass->num_classes;
  const auto labels = labels_of(owner, *multiclass, preds, target);
  return (labels.target * classes + labels.preds).bincount({}, classes * classes).view({classes, classes});
}

/// Positives and negatives of each class or label. @throws DataError as confusion_counts
StatCounts stat_counts(const std::string& owner, const ClassificationTask& task, const at::Tensor& preds,
                       const at::Tensor& target) {
  return std::visit(
      [&](const auto& each) {
        if constexpr (std::is_same_v<std::decay_t<decltype(each)>, Multiclass>)
          return counts_of_labels(labels_of(owner, each, preds, target), each.num_classes);
        else
          return counts_of_cells(cells_of(owner, each, preds, target));
      },
      task);
}

}  // namespace
}  // namespace lockstep::metrics::detail

namespace lockstep::metrics {
namespace {

at::Tensor zeros_for(const ClassificationTask& task) {
  return at::zeros({detail::width_of(task)}, at::kLong);
}

StatCounts summed(const StatCounts& counts) {
  return {counts.tp.sum(), counts.fp.sum(), counts.tn.sum(), counts.fn.sum()};
}

}  // namespace

StatScores::StatScores(std::string name, const ClassificationTask& task, Average average)
    : PredictionMetric(std::move(name)),
      task_(detail::checked_task(this->name(), task)),
      average_(std::holds_alternative<Binary>(task) ? Average::kMicro : average),
      tp_(add_state("tp", zeros_for(task), StateReduction::kSum)),
      fp_(add_state("fp", zeros_for(task), StateReduction::kSum)),
      tn_(add_state("tn", zeros_for(task), StateReduction::kSum)),
      fn_(add_state("fn", zeros_for(task), StateReduction::kSum)) {}

at::Tensor StatScores::compute() const {
  const StatCounts counts{value(tp_), value(fp_), value(tn_), value(fn_)};
  if (average_ == Average::kMicro) return score(summed(counts));
  const auto scores = score(counts);
  if (average_ == Average::kNone) return scores;
  if (average_ == Average::kWeighted) return detail::weighted_mean(scores, counts.tp + counts.fn);
  const bool counts_all = std::holds_alternative<Multilabel>(task_);
  const auto weights = counts_all ? at::ones_like(scores) : is_absent(counts).logical_not().to(at::kDouble);
  return detail::weighted_mean(scores, weights);
}

bool StatScores::has_states_of(const PredictionMetric& other) const {
  const auto* scores = dynamic_cast<const StatScores*>(&other);
  return scores && scores->task_ == task_;
}

std::vector<at::Tensor> StatScores::batch_states(const at::Tensor& preds, const at::Tensor& target) const {
  const auto counts = detail::stat_counts(name(), task_, preds, target);
  return {counts.tp, counts.fp, counts.tn, counts.fn};
}

at::Tensor StatScores::is_absent(const StatCounts& counts) const {
  const auto* multiclass = std::get_if<Multiclass>(&task_);
  const auto there = counts.tp + counts.fn;
  // As torchmetrics: among the best k, a class that was only predicted does not count as there.
  return multiclass && multiclass->top_k > 1 ? there.eq(0) : (there + counts.fp).eq(0);
}

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

std::span<const OptionName<Average>> option_names(Average) {
  static constexpr OptionName<Average> kNames[] = {{"micro", Average::kMicro},
                                                   {"macro", Average::kMacro},
                                                   {"weighted", Average::kWeighted},
                                                   {"none", Average::kNone}};
  return kNames;
}

std::span<const OptionName<Normalize>> option_names(Normalize) {
  static constexpr OptionName<Normalize> kNames[] = {{"none", Normalize::kNone},
                                                     {"true", Normalize::kTrue},
                                                     {"pred", Normalize::kPred},
                                                     {"all", Normalize::kAll}};
  return kNames;
}

}  // namespace lockstep::metrics
