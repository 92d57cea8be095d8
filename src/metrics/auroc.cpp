// Auroc: the area under the receiver operating characteristic, exact or from a histogram of scores.
#include <lockstep/metrics/classification.h>

#include <algorithm>
#include <limits>
#include <optional>

#include <ATen/ATen.h>
#include <ATen/core/Tensor.h>

#include "metrics/inputs.h"

namespace lockstep::metrics::detail {
namespace {

// Points of a curve, float64, ascending.
struct RocCurve {
  at::Tensor fpr;  ///< false positives / negatives; all 0 without negatives
  at::Tensor tpr;  ///< true positives / positives; all 0 without positives
};

at::Tensor with_zero_first(const at::Tensor& values) {
  return at::cat({at::zeros({1}, values.options()), values});
}

// From (0, 0) to (1, 1), which given thresholds need not reach.
RocCurve whole(const RocCurve& curve) {
  const auto begin = at::zeros({1}, at::kDouble), end = at::ones({1}, at::kDouble);
  return {at::cat({begin, curve.fpr, end}), at::cat({begin, curve.tpr, end})};
}

// The curve up to `max_fpr`, which is below 1, where it is interpolated.
RocCurve cut(const RocCurve& given, double max_fpr) {
  const auto curve = whole(given);
  const auto stop = curve.fpr.le(max_fpr).sum().item<std::int64_t>();
  const auto end = at::full({1}, max_fpr, at::kDouble);
  const auto share = (end - curve.fpr[stop - 1]) / (curve.fpr[stop] - curve.fpr[stop - 1]);
  const auto height = curve.tpr[stop - 1] + share * (curve.tpr[stop] - curve.tpr[stop - 1]);
  return {at::cat({curve.fpr.narrow(0, 0, stop), end}), at::cat({curve.tpr.narrow(0, 0, stop), height})};
}

bool is_flat(const at::Tensor& rates) { return rates.eq(0).all().item<bool>(); }

// A point for every score that occurs, and (0, 0). `scores` and `is_positive`: [n], n > 0.
RocCurve roc_of_scores(const at::Tensor& scores, const at::Tensor& is_positive) {
  const auto [sorted, order] = scores.sort(0, /*descending=*/true);
  const auto last = sorted.numel() - 1;
  const auto changes = sorted.diff().ne(0).nonzero().flatten();
  const auto ends =
      at::cat({changes, at::full({1}, last, at::kLong)});  // the last of each run of equal scores
  const auto tps = is_positive.index_select(0, order).cumsum(0, at::kLong).index_select(0, ends);
  const auto fps = ends + 1 - tps;
  return {with_zero_first(safe_divide(fps, fps[-1])), with_zero_first(safe_divide(tps, tps[-1]))};
}

// How many elements reach how many of `thresholds`, int64 [columns, 2, thresholds + 1]: of negatives in row
// 0, of positives in row 1. `scores` and `is_positive`: [n, columns]; only those where `is_counted`, if
// defined.
at::Tensor threshold_histogram(const at::Tensor& scores, const at::Tensor& is_positive,
                               const at::Tensor& is_counted, const at::Tensor& thresholds) {
  const auto columns = scores.size(1), bins = thresholds.numel() + 1;
  const auto comparable = scores.scalar_type() == at::kDouble ? scores : scores.to(at::kFloat);
  const auto reached = at::searchsorted(thresholds.to(comparable.options()), comparable.contiguous(),
                                        /*out_int32=*/false, /*right=*/true);
  const auto row = at::arange(columns, reached.options()) * 2 + is_positive.to(at::kLong);
  auto cells = row * bins + reached;
  if (is_counted.defined()) cells = cells.masked_select(is_counted);
  return cells.flatten().bincount({}, columns * 2 * bins).view({columns, 2, bins});
}

// A point for every threshold, of one column of that histogram, [2, thresholds + 1].
RocCurve roc_of_histogram(const at::Tensor& histogram) {
  // A score that reaches threshold i reaches all thresholds below, too: sums from the highest threshold down.
  const auto reaching = histogram.flip(1).cumsum(1);
  const auto at_thresholds = reaching.narrow(1, 0, reaching.size(1) - 1);
  const auto all = reaching.select(1, -1);
  return {safe_divide(at_thresholds[0], all[0]), safe_divide(at_thresholds[1], all[1])};
}

// The area under the curve by trapezoids, []; up to `max_fpr` where given, scaled so that chance gives 0.5.
// McClish, Medical Decision Making 9(3), 1989.
at::Tensor area(const RocCurve& curve, const std::optional<double>& max_fpr) {
  const bool is_whole = !max_fpr || *max_fpr == 1 || is_flat(curve.fpr) || is_flat(curve.tpr);
  if (is_whole) return at::trapezoid(curve.tpr, curve.fpr);
  const auto part = cut(curve, *max_fpr);
  const double by_chance = 0.5 * *max_fpr * *max_fpr;
  return 0.5 * (1 + (at::trapezoid(part.tpr, part.fpr) - by_chance) / (*max_fpr - by_chance));
}

}  // namespace
}  // namespace lockstep::metrics::detail

namespace lockstep::metrics {
namespace {

// One column per class or label.
struct Samples {
  at::Tensor scores;  // [n, columns]
  at::Tensor target;  // int64, classes [n], or 0 and 1 and what is ignored [n, columns]
};

struct Positives {
  at::Tensor is_positive;  // bool [n, columns]
  at::Tensor is_counted;   // the same; undefined: all
};

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

void check_options(const ClassificationTask& task, const AurocOptions& options) {
  const bool is_micro = options.average == Average::kMicro && std::holds_alternative<Multiclass>(task);
  if (is_micro)
    detail::refuse_option("Auroc: average", "kMacro, kWeighted or kNone for Multiclass", "kMicro");
  if (!options.max_fpr) return;
  if (!std::holds_alternative<Binary>(task))
    detail::refuse_option("Auroc: max_fpr", "none: it is for Binary", c10::str(*options.max_fpr));
  detail::require_option(*options.max_fpr > 0 && *options.max_fpr <= 1, "Auroc: max_fpr", *options.max_fpr,
                         "a number above 0, up to 1");
}

at::Tensor tensor_of(std::monostate) { return {}; }

at::Tensor tensor_of(std::int64_t count) {
  detail::require_option(count >= 2, "Auroc: thresholds", static_cast<double>(count),
                         "a number of at least 2");
  return at::linspace(0, 1, count, at::kFloat);
}

at::Tensor tensor_of(const std::vector<double>& thresholds) {
  if (thresholds.empty()) detail::refuse_option("Auroc: thresholds", "at least one", "none");
  for (std::size_t i = 0; i < thresholds.size(); ++i) {
    const double least = i == 0 ? 0 : thresholds[i - 1];
    detail::require_option(thresholds[i] >= least && thresholds[i] <= 1,
                           "Auroc: thresholds[" + std::to_string(i) + "]", thresholds[i],
                           "numbers from 0 to 1, ascending");
  }
  return at::tensor(thresholds, at::kFloat);
}

void check_scores(const at::Tensor& scores) {
  detail::require_input(scores.is_floating_point(), "Auroc: preds", scores, "scores: floating point");
  if (scores.isnan().any().item<bool>()) detail::refuse_input("Auroc: preds", "numbers", "NaN");
}

Samples samples_of(const Binary& task, const at::Tensor& preds, const at::Tensor& target) {
  detail::check_same_shape("Auroc", preds, target);
  detail::check_classes("Auroc: target", target, 2, task.ignore_index);
  const auto is_counted = detail::counted(target, task.ignore_index);
  const auto scores = detail::select_counted(preds, is_counted).reshape({-1, 1});
  return {detail::probabilities(scores, detail::Normalization::kSigmoid),
          detail::select_counted(target, is_counted).reshape({-1, 1}).to(at::kLong)};
}

Samples samples_of(const Multiclass& task, const at::Tensor& preds, const at::Tensor& target) {
  detail::check_scores_shape("Auroc", preds, target, task.num_classes);
  detail::check_classes("Auroc: target", target, task.num_classes, task.ignore_index);
  const auto flat = target.flatten().to(at::kLong);
  const auto is_counted = detail::counted(flat, task.ignore_index);
  const auto scores = detail::select_counted(detail::classes_last(preds), is_counted);
  return {detail::probabilities(scores, detail::Normalization::kSoftmax),
          detail::select_counted(flat, is_counted)};
}

Samples samples_of(const Multilabel& task, const at::Tensor& preds, const at::Tensor& target) {
  detail::check_labels_shape("Auroc", preds, target, task.num_labels);
  detail::check_classes("Auroc: target", target, 2, task.ignore_index);
  return {detail::probabilities(detail::classes_last(preds), detail::Normalization::kSigmoid),
          detail::classes_last(target).to(at::kLong)};
}

Positives positives_of(const ClassificationTask& task, const at::Tensor& target) {
  if (const auto* multiclass = std::get_if<Multiclass>(&task))
    return {target.unsqueeze(1).eq(at::arange(multiclass->num_classes, target.options())), {}};
  const auto* multilabel = std::get_if<Multilabel>(&task);
  return {target.eq(1), multilabel ? detail::counted(target, multilabel->ignore_index) : at::Tensor()};
}

// Of one column.
at::Tensor exact_area(const Samples& samples, const Positives& positives, std::int64_t column,
                      const std::optional<double>& max_fpr) {
  auto scores = samples.scores.select(1, column), is_positive = positives.is_positive.select(1, column);
  if (positives.is_counted.defined()) {
    const auto is_counted = positives.is_counted.select(1, column);
    scores = scores.masked_select(is_counted);
    is_positive = is_positive.masked_select(is_counted);
  }
  if (scores.numel() == 0) return at::full({}, kNan, at::kDouble);
  return detail::area(detail::roc_of_scores(scores, is_positive), max_fpr);
}

// `areas` and the numbers of positives, by column. Columns that are NaN are left out.
at::Tensor averaged(const std::vector<at::Tensor>& areas, const at::Tensor& positives, Average average) {
  const auto all = at::stack(areas);
  if (areas.size() == 1) return all[0];
  if (average == Average::kNone) return all;
  const auto is_number = all.isnan().logical_not();
  const auto known = all.masked_select(is_number);
  if (average == Average::kMacro) return known.mean();
  return detail::weighted_mean(known, positives.masked_select(is_number));
}

}  // namespace

Auroc::Auroc(const ClassificationTask& task, const AurocOptions& options)
    : PredictionMetric("Auroc"),
      task_(detail::checked_task_without_top_k(name(), task)),
      options_(options),
      thresholds_(std::visit([](const auto& each) { return tensor_of(each); }, options.thresholds)) {
  check_options(task, options);
  if (thresholds_.defined()) {
    const auto bins = thresholds_.numel() + 1;
    histogram_ =
        add_state("histogram", at::zeros({detail::width_of(task), 2, bins}, at::kLong), StateReduction::kSum);
  } else {
    preds_ = add_cat_state("preds");
    target_ = add_cat_state("target");
  }
}

at::Tensor Auroc::compute() const { return thresholds_.defined() ? compute_binned() : compute_exact(); }

at::Tensor Auroc::compute_exact() const {
  Samples samples{value(preds_), value(target_)};
  const auto columns = detail::width_of(task_);
  if (samples.scores.size(0) == 0) {
    const bool is_list = options_.average == Average::kNone && columns > 1;
    return is_list ? at::full({columns}, kNan, at::kDouble) : at::full({}, kNan, at::kDouble);
  }
  auto positives = positives_of(task_, samples.target);
  const auto numbers = positives.is_positive.sum(0);
  if (options_.average == Average::kMicro) {  // all labels as one column
    samples.scores = samples.scores.reshape({-1, 1});
    positives.is_positive = positives.is_positive.reshape({-1, 1});
    if (positives.is_counted.defined()) positives.is_counted = positives.is_counted.reshape({-1, 1});
  }
  std::vector<at::Tensor> areas;
  for (std::int64_t column = 0; column < samples.scores.size(1); ++column)
    areas.push_back(exact_area(samples, positives, column, options_.max_fpr));
  return averaged(areas, numbers, options_.average);
}

at::Tensor Auroc::compute_binned() const {
  const auto by_column = value(histogram_);
  const auto numbers = by_column.select(1, 1).sum(-1);
  const auto histogram =
      options_.average == Average::kMicro ? by_column.sum({0}, /*keepdim=*/true) : by_column;
  std::vector<at::Tensor> areas;
  for (std::int64_t column = 0; column < histogram.size(0); ++column)
    areas.push_back(detail::area(detail::roc_of_histogram(histogram[column]), options_.max_fpr));
  return averaged(areas, numbers, options_.average);
}

bool Auroc::has_states_of(const PredictionMetric& other) const {
  const auto* auroc = dynamic_cast<const Auroc*>(&other);
  return auroc && auroc->task_ == task_ && auroc->options_.thresholds == options_.thresholds;
}

std::vector<at::Tensor> Auroc::batch_states(const at::Tensor& preds, const at::Tensor& target) const {
  const auto samples = std::visit([&](const auto& task) { return samples_of(task, preds, target); }, task_);
  check_scores(samples.scores);
  if (!thresholds_.defined()) return {samples.scores, samples.target};
  const auto positives = positives_of(task_, samples.target);
  return {
      detail::threshold_histogram(samples.scores, positives.is_positive, positives.is_counted, thresholds_)};
}

}  // namespace lockstep::metrics
