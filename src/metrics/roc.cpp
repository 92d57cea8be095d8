#include "metrics/roc.h"

#include <ATen/ATen.h>

#include "metrics/averaging.h"

namespace lockstep::metrics::detail {
namespace {

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

}  // namespace

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

RocCurve roc_of_histogram(const at::Tensor& histogram) {
  // Who reaches i thresholds reaches all below too: sums from the highest threshold down.
  const auto reaching = histogram.flip(1).cumsum(1);
  const auto at_thresholds = reaching.narrow(1, 0, reaching.size(1) - 1);
  const auto all = reaching.select(1, -1);
  return {safe_divide(at_thresholds[0], all[0]), safe_divide(at_thresholds[1], all[1])};
}

at::Tensor area(const RocCurve& curve, const std::optional<double>& max_fpr) {
  const bool is_whole = !max_fpr || *max_fpr == 1 || is_flat(curve.fpr) || is_flat(curve.tpr);
  if (is_whole) return at::trapezoid(curve.tpr, curve.fpr);
  const auto part = cut(curve, *max_fpr);
  const double by_chance = 0.5 * *max_fpr * *max_fpr;
  return 0.5 * (1 + (at::trapezoid(part.tpr, part.fpr) - by_chance) / (*max_fpr - by_chance));
}

}  // namespace lockstep::metrics::detail
