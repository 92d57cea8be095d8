#include <lockstep/metrics/stat_scores.h>

#include <utility>

#include <ATen/ATen.h>

#include "metrics/averaging.h"
#include "metrics/class_counts.h"
#include "metrics/inputs.h"

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
