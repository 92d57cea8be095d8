#include "metrics/stat_scores.h"

#include <type_traits>
#include <utility>

#include <ATen/ATen.h>

#include <lockstep/metrics/stat_scores.h>

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

}  // namespace

at::Tensor confusion_counts(const std::string& owner, const ClassificationTask& task, const at::Tensor& preds,
                            const at::Tensor& target) {
  const auto* multiclass = std::get_if<Multiclass>(&task);
  if (!multiclass) {
    const auto* binary = std::get_if<Binary>(&task);
    return binary ? cells_of(owner, *binary, preds, target)[0]
                  : cells_of(owner, std::get<Multilabel>(task), preds, target);
  }
  const auto classes = multiclass->num_classes;
  const auto labels = labels_of(owner, *multiclass, preds, target);
  return (labels.target * classes + labels.preds).bincount({}, classes * classes).view({classes, classes});
}

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

}  // namespace lockstep::metrics
