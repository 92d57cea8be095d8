#include "metrics/inputs.h"

#include <utility>

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <lockstep/base/error.h>

namespace lockstep::metrics::detail {

void refuse_option(std::string what, std::string expected, std::string got) {
  throw ConfigError("metrics",
                    {.what = std::move(what), .expected = std::move(expected), .got = std::move(got)});
}

void require_option(bool allowed, const std::string& what, double value, const std::string& expected) {
  if (!allowed) refuse_option(what, expected, c10::str(value));
}

void refuse_input(std::string what, std::string expected, std::string got) {
  throw DataError("metrics",
                  {.what = std::move(what), .expected = std::move(expected), .got = std::move(got)});
}

void require_input(bool allowed, const std::string& what, const at::Tensor& value,
                   const std::string& expected) {
  if (!allowed) refuse_input(what, expected, text_of(value));
}

std::string text_of(const at::Tensor& tensor) {
  return tensor.defined() ? c10::str(tensor.scalar_type(), " ", tensor.sizes()) : "an undefined tensor";
}

at::Tensor safe_divide(const at::Tensor& numerator, const at::Tensor& denominator, double zero_division) {
  const auto ratio = numerator.to(at::kDouble) / denominator.to(at::kDouble);
  return ratio.masked_fill(denominator.eq(0), zero_division);
}

at::Tensor weighted_mean(const at::Tensor& values, const at::Tensor& weights) {
  return (safe_divide(weights, weights.sum()) * values).sum();
}

namespace {

void check_threshold(const std::string& owner, double threshold) {
  require_option(threshold >= 0 && threshold <= 1, owner + ": threshold", threshold, "a number from 0 to 1");
}

void check(const std::string& owner, const Binary& task) { check_threshold(owner, task.threshold); }

void check(const std::string& owner, const Multiclass& task) {
  require_option(task.num_classes >= 2, owner + ": num_classes", static_cast<double>(task.num_classes),
                 "at least 2");
  require_option(task.top_k >= 1 && task.top_k <= task.num_classes, owner + ": top_k",
                 static_cast<double>(task.top_k), "1 to num_classes, " + std::to_string(task.num_classes));
}

void check(const std::string& owner, const Multilabel& task) {
  require_option(task.num_labels >= 2, owner + ": num_labels", static_cast<double>(task.num_labels),
                 "at least 2");
  check_threshold(owner, task.threshold);
}

std::string range_text(std::int64_t classes, const std::optional<std::int64_t>& ignore_index) {
  return "integers from 0 to " + std::to_string(classes - 1) +
         (ignore_index ? ", or ignore_index " + std::to_string(*ignore_index) : "");
}

// Narrow integers cannot be compared with numbers that they do not hold.
at::Tensor comparable(const at::Tensor& target) {
  return target.is_floating_point() ? target : target.to(at::kLong);
}

}  // namespace

const ClassificationTask& checked_task(const std::string& owner, const ClassificationTask& task) {
  std::visit([&](const auto& each) { check(owner, each); }, task);
  return task;
}

const ClassificationTask& checked_task_without_top_k(const std::string& owner,
                                                     const ClassificationTask& task) {
  checked_task(owner, task);
  const auto* multiclass = std::get_if<Multiclass>(&task);
  require_option(!multiclass || multiclass->top_k == 1, owner + ": top_k",
                 multiclass ? static_cast<double>(multiclass->top_k) : 1, "1: this metric has no top_k");
  return task;
}

std::int64_t width_of(const ClassificationTask& task) {
  if (const auto* multiclass = std::get_if<Multiclass>(&task)) return multiclass->num_classes;
  if (const auto* multilabel = std::get_if<Multilabel>(&task)) return multilabel->num_labels;
  return 1;
}

at::Tensor probabilities(const at::Tensor& scores, Normalization normalize) {
  const auto are_probabilities = scores.ge(0).logical_and_(scores.le(1)).all().item<bool>();
  if (are_probabilities) return scores;
  return normalize == Normalization::kSigmoid ? scores.sigmoid() : scores.softmax(1);
}

at::Tensor counted(const at::Tensor& target, const std::optional<std::int64_t>& ignore_index) {
  return ignore_index ? comparable(target).ne(*ignore_index) : at::Tensor();
}

at::Tensor select_counted(const at::Tensor& values, const at::Tensor& is_counted) {
  return is_counted.defined() ? values.index({is_counted}) : values;
}

void check_classes(const std::string& what, const at::Tensor& target, std::int64_t classes,
                   const std::optional<std::int64_t>& ignore_index) {
  const auto values = comparable(target);
  auto is_wrong = values.ge(0).logical_and_(values.lt(classes)).logical_not_();
  if (values.is_floating_point()) is_wrong.logical_or_(values.ne(values.floor()));
  if (ignore_index) is_wrong.logical_and_(values.ne(*ignore_index));
  if (!is_wrong.any().item<bool>()) return;
  const auto first = values.masked_select(is_wrong)[0].item<double>();
  refuse_input(what, range_text(classes, ignore_index), c10::str(first));
}

void check_same_shape(const std::string& owner, const at::Tensor& preds, const at::Tensor& target) {
  require_input(target.defined(), owner + ": target", target, "a tensor");
  require_input(preds.defined() && preds.sizes() == target.sizes(), owner + ": preds", preds,
                c10::str("the shape of target, ", target.sizes()));
  require_input(!preds.is_complex() && !target.is_complex(), owner + ": preds", preds, "real numbers");
}

void check_labels_shape(const std::string& owner, const at::Tensor& preds, const at::Tensor& target,
                        std::int64_t num_labels) {
  check_same_shape(owner, preds, target);
  require_input(preds.dim() >= 2 && preds.size(1) == num_labels, owner + ": preds", preds,
                c10::str("shape [N, ", num_labels, ", ...]"));
}

void check_scores_shape(const std::string& owner, const at::Tensor& preds, const at::Tensor& target,
                        std::int64_t num_classes) {
  require_input(target.defined() && !target.is_floating_point() && !target.is_complex(), owner + ": target",
                target, "classes: a tensor of integers");
  const auto expected = c10::str("scores [N, ", num_classes, ", ...] for target ", target.sizes());
  require_input(preds.defined() && preds.is_floating_point() && preds.dim() == target.dim() + 1 &&
                    preds.dim() >= 2 && preds.size(1) == num_classes && preds.size(0) == target.size(0) &&
                    preds.sizes().slice(2) == target.sizes().slice(1),
                owner + ": preds", preds, expected);
}

at::Tensor classes_last(const at::Tensor& values) {
  return values.movedim(1, -1).reshape({-1, values.size(1)});
}

}  // namespace lockstep::metrics::detail
